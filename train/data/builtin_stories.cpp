// The grammar of the built-in corpus, in the notation that train/data/grammar.h explains. It is made so that a very
// small model can learn it in a minute: many choices are even ones between short words from few lists, and no sentence
// needs a word from far back. What is lost comes back as "it", and the hero is always a "she", because such a model
// learns last which of several words was used some sentences ago.
#include "train/data/builtin_corpus.h"

namespace tril {

const char* builtin_stories() {
  return R"grammar(
story = {hero} had a {adj} {adj} {pet}, {a_thing} and {a_thing}. {deed}{days}One {adj} {adj} day {plot} {rest} {ending}//

# Days like any other, then one with something missing.

days = / | 3* _{deed}{days_two}
days_two = / | 3* _{deed}{days_three}
days_three = / | 2* _{deed}/
plot =
  2* she lost {a_thing} {by} {a_thing}.
  she ran off to find {a_thing} for {a_being}.
  a {being_phrase} hid {a_thing} {by} {a_thing}.
rest = {end} | 2* {search} {rest_two}
rest_two = {end} | 2* {search} {rest_three}
rest_three = {end} | 2* {search} {end}
search =
  3* She looked for it {by} {a_thing}{places}.
  She asked {a_being} for it.
  2* "I saw it {by} {not_hers}," said {a_being}.
places = 2* _and {a_thing} | 3* , {a_thing} and {a_thing}
end = At last {a_being} {found} it {by} {a_thing} and {a_thing}.
ending =
  So she {sat} {by} {a_thing} and {a_thing}.
  That night she dreamt of {a_thing} and {a_thing}.
  And she {gave} {a_being} {a_thing} and {a_thing}.

# Sentences for any day.

deed =
  6* She {act}
  2* {so} she {act}
  4* A {being_phrase} {event}
  The {being_phrase} {event}
act = {did} {a_thing}{tail}.
tail = 4* _{by} {a_thing} | 2* _and {a_thing} | 5* , {a_thing} and {a_thing}
event = {gave} her {a_thing}. | {sat} with her {by} {a_thing}.

# Things and beings. Every noun follows an adjective, none of which begins with a vowel: "an" is never needed.

a_thing = 5* a {phrase} | the {phrase} | her {phrase}
not_hers = 4* a {phrase} | the {phrase}
phrase = {adj} {phrase_end}
phrase_end = {noun} | {adj} {noun}
noun = {being} | {thing}
a_being = 4* a {being_phrase} | the {being_phrase}
being_phrase = {adj} {being_end}
being_end = {being} | {adj} {being}

# Words.

hero = Ann | Bea | Dot | Eve | Fay | Gwen | Ivy | Jane | Kim | Lily | Mia | Nell | Pam | Rose | Sue | Tess | Una | Zoe
pet = cat | dog | foal | pup
so = Then | Soon | Now | Next | But | Yet
sat = sat | sang | slept | stood | lay | hummed | wept | ate | played | woke
gave = gave | lent | sold | brought | sent | showed
found = found | saw | spied
by = 2* by | 2* near | 2* on | under | behind | beside
did =
  bought | caught | chose | cleaned | drew | found | got | had | held | hid | hugged | kept | kissed | knew | left
  liked | lost | loved | made | met | moved | named | owned | passed | patted | saw | sold | stole | took | used
  washed | won
adj =
  bad | big | black | blue | bold | brave | bright | brown | calm | clean | cold | cosy | cute | damp | dark | dear
  dry | dull | dusty | fair | fat | fine | fresh | funny | glad | gold | good | grand | great | green | grey | huge
  jolly | keen | kind | large | lazy | light | little | long | lost | loud | low | lucky | mad | meek | merry | mild
  muddy | neat | new | nice | noble | pale | pink | plain | plump | poor | posh | proud | quick | quiet | rare | red
  rich | rough | round | royal | rusty | sad | safe | sandy | shiny | shy | silly | slim | slow | small | smart | snug
  soft | stout | strong | sweet | swift | tall | tame | thick | thin | tidy | tiny | tough | warm | weak | wet | white
  wide | wild | wise | yellow
being =
  ant | ape | bear | bee | bird | boar | bull | calf | chef | cook | cow | crab | crow | deer | dove | duck | eel
  emu | fish | fly | fox | frog | goat | goose | hare | hen | hog | horse | king | lamb | lark | maid | man | mole
  monk | moth | mouse | mule | newt | nun | owl | pig | pony | queen | ram | rat | seal | slug | snail | swan | toad
  vole | wasp | witch | wolf | worm | wren | yak
thing =
  axe | bag | bat | bed | bell | belt | bib | boat | book | boot | bow | box | bun | bus | can | cap | card | cart
  coat | coin | comb | cot | desk | dish | doll | door | egg | fan | flag | fork | gate | gem | gift | gong | harp
  hood | hoop | horn | hut | jar | jet | jug | keg | kite | leaf | lid | lock | log | map | mask | mat | mop | mug
  nail | net | nut | oar | pan | peg | pen | pie | pipe | pot | rag | rod | rope | rug | sack | saw | shed | shell
  ship | shoe | sled | sock | sofa | stone | tent | top | toy | tray | tub | urn | van | vase | wand | web | wheel
  wig
)grammar";
}

}  // namespace tril
