// The grammar of the built-in corpus, in the notation that train/grammar.h explains. It is made to be learnt in a
// minute: much is left to chance, and evenly, in short words from few lists; little has to be remembered, and that
// comes back soon or is one of a few. Every noun follows an adjective, so that none needs an "an".
#include "train/builtin_corpus.h"

namespace tril {

const char* builtin_stories() {
  return R"grammar(
story = {hero} had a {adj} {adj} {pet=pet}, {one} and {one}./One {adj} {adj} day {plot} {deed} {more} {ending}//

# Whom it is about: a hero with pronouns, and a <pet>.

hero =
  {girl}[he=she][him=her][his=her]
  {boy}[he=he][him=him][his=his]

# What happens: <goal> is what is missing, and comes at last.

plot =
  <he> lost a {adj} {adj} {goal=prize} {by} {one}.
  <he> ran off to find {one}, {one} and a {adj} {goal=prize}.
  <he> met a {adj} {adj} {guest=guest}. "I need a {adj} {adj} {goal=prize}," said the <guest>.
  the <pet> hid a {adj} {adj} {goal=prize} {by} {one}.
more = {end} | 4* {deed} {more_two}
more_two = {end} | 4* {deed} {more_three}
more_three = {end} | 4* {deed} {more_four}
more_four = {end} | 4* {deed} {more_five}
more_five = {end} | 4* {deed} {more_six}
more_six = {end} | 4* {deed} {end}
end = At last {one_being} {gave} <him> the <goal> and {one}.
ending =
  So <he> {sat} {by} {one} and {one}.
  That night <he> dreamt of {one} and {one}.
  And the <pet> {sat} {by} {one} and {one}.

# Sentences for any story.

deed =
  6* <He> {act}
  2* {so} <he> {act}
  3* A {being_np} {event}
  The {being_np} {event}
event = 2* {sat} {by} {one}. | {gave} <him> {one}.
act = {did} {one}{tail}.
tail = 4* _{by} {one} | 2* _and {one} | 5* , {one} and {one}

# Things and beings.

one = 5* a {np} | the {np} | <his> {np}
np = {adj} {np_end}
np_end = {noun} | {adj} {noun}
noun = {being} | {thing}
one_being = 4* a {being_np} | the {being_np}
being_np = {adj} {being_end}
being_end = {being} | {adj} {being}

# Words.

girl = Ann | Eve | Ivy | Kim | Mia | Zoe
boy = Ben | Dan | Gus | Jim | Sam | Tom
pet = cat | dog | foal
guest = bear | elf | goat | king | lion | witch
prize = drum | hat | key | lamp
so = Then | Soon | Now | Next | But | Yet
sat = sat | sang | slept | stood | lay | hummed | wept | ate | played | woke
gave = gave | lent | sold | brought | sent | showed
by = 2* by | 2* near | 2* on | under | behind | beside
did =
  bought | caught | chose | cleaned | drew | found | got | had | held | hid | hugged | kept | kissed | knew | left
  liked | lost | loved | made | met | missed | moved | named | owned | passed | patted | saw | sold | sought | spied
  stole | took | used | wanted | washed | won
adj =
  bad | big | black | blue | bold | brave | bright | brown | calm | clean | cold | cosy | cute | damp | dark | dear
  dry | dull | dusty | fair | fat | fine | fresh | funny | glad | gold | good | grand | great | green | grey | huge
  jolly | keen | kind | large | lazy | light | little | long | lost | loud | low | lucky | mad | meek | merry | mild
  muddy | neat | new | nice | noble | pale | pink | plain | plump | poor | posh | proud | quick | quiet | rare | red
  rich | rough | round | royal | rusty | sad | safe | sandy | shiny | shy | silly | slim | slow | small | smart | snug
  soft | stout | strong | sweet | swift | tall | tame | thick | thin | tidy | tiny | tough | warm | weak | wet | white
  wide | wild | wise | yellow
being =
  ant | ape | bee | bird | boar | bull | calf | chef | cook | cow | crab | crow | deer | dove | duck | eel | emu
  fish | fly | fox | frog | goose | hare | hen | hog | horse | lamb | lark | maid | man | mole | monk | moth | mouse
  mule | newt | nun | owl | pig | pony | queen | ram | rat | seal | slug | snail | swan | toad | vole | wasp | wolf
  worm | wren | yak
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
