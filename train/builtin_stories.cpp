// The grammar of the built-in corpus, in the notation that train/grammar.h explains. It is made to be learnt in a
// minute: each sentence has a cue near by for what comes next, and the lists of words are long and even, so that what
// is left to chance is spread over the whole text.
#include "train/builtin_corpus.h"

namespace tril {

const char* builtin_stories() {
  return R"grammar(
story = {hero} was a {mood_adj} <kid> with a {mood_adj} {pet=pet}. {deed}{second_deed}One {weather} {part} {plot}//
second_deed = / | 3* _{deed}/

# Whom it is about: <hero>, a <kid> with pronouns, and an animal, <pet>, with its own <cry>.

hero =
  {hero=girl}[kid=girl][he=she][him=her][his=her]
  {hero=boy}[kid=boy][he=he][him=him][his=his]

# What happens.

plot =
  2* <he> lost a {adj} {lost=thing}. {search} {lost}
  2* <he> met a {mood_adj} {other=animal} {where}. {talk} {friendly}
  <he> wanted to {wish=wish}. {wanted}
  <he> heard a {noise} noise {where}. {heard}
  <he> took the <pet> to {spot}. {trip}
  the <pet> was gone. {search} {gone}
  it began to {rain}. They ran to {spot}. {trip}

search = <He> looked {where} and {where}.
lost =
  2* {deed} {lost_on}
  "{hint}," said {someone}. {lost_on}
lost_on = {found} | 3* {deed} {found}
found =
  At last <he> saw the <lost> {where}. {ending}
  In the end {someone} found it {where}. {ending}
hint = Look {where} | I saw it {where} | Ask the {person}

talk =
  "Where do you live?" <he> asked. "I live {where}," said the <other>.
  "What do you eat?" <he> asked. "I eat {sweet} and {plain}," said the <other>.
  "What do you have?" <he> asked. "I have {a_thing}," said the <other>.
  "Can you {skill}?" <he> asked. "No, but I can {skill}," said the <other>.
friendly =
  "Let us {skill}," said <hero>. So they did. {ending}
  They {act}. {ending}
  3* {deed} {trip_end}

wanted = {deed} {wanted_on}
wanted_on = {helped} | 3* {deed} {helped}
helped =
  So {someone} helped <him>. {ending}
  At last <he> could <wish>. {ending}

heard = {maker} {heard_on}
heard_on = {ending} | 4* {deed} {trip_end}
maker = It was only a {mood_adj} {animal}. | It was the {person} with {a_thing}.

trip = {deed} {trip_on}
trip_on = {ending} | 4* {deed} {trip_end}
trip_end = {ending} | 2* {deed} {ending}

gone = {back} | 3* {deed} {back}
back = At last something <cry> {where}. It was the <pet>! {ending}
noise = loud | faint | strange | funny | sudden

cried = said | cried | called | sang
ending =
  They went home {mood} and {comfort}.
  "I am so {feeling}!" {cried} <hero>.
  "I like {number} {adj} {things}," said <hero>.
  That night <he> dreamed of {a_thing}.
  <Hero> was {feeling}, and so was the <pet>.
  And the <pet> {pet_act}.
feeling = {mood} | {comfort}

# Sentences for any story.

deed =
  6* <He> {act}.
  4* {then} <he> {act}.
  <Hero> {act}.
  The <pet> {pet_act}.
  3* <His> {family} {act}.
act =
  13* {did} {what}
  2* {went} {past} {spot}
  2* {saw} a {mood_adj} {animal} {where}
  {met} the {person} {where}
  ate {sweet} and {plain} with the {person}
  gave the {person} {a_thing}
what = 9* {a_thing} {tail} | 4* {number} {adj} {coloured_things}
tail = 5* {where} | and {a_thing} | for the {person}
pet_act = <cry> | {went} {past} {spot} | ate {sweet} and {plain} | slept {where}
wish = {skill} | have {a_thing} | see {spot} | be a {person}

# Places, people, things.

where = {near} {spot}
spot = the {spot_adj} {landmark}
someone = the {person} | <his> {family}
a_thing = a {adj} {coloured}
coloured_things = {things} | {colour} {things}
coloured = {thing} | {colour} {thing}

# Words. Those of one list are in few others, so that a word tells its own kind.

girl = Mia | Lily | Anna | Rosa | Zoe | Ivy
boy = Tom | Ben | Max | Finn | Leo | Sam
family = mother | father | sister | brother | aunt | uncle | grandma | grandpa
pet = cat[cry=purred] | dog[cry=barked] | hen[cry=clucked] | duck[cry=quacked] | frog[cry=croaked] | pig[cry=grunted]
person =
  baker | farmer | miller | sailor | doctor | cook | king | queen | knight | witch | pirate | teacher | judge | clown
  piper | hunter | nurse | maid | giant | monk
animal =
  fox | mouse | goose | rabbit | bird | goat | bear | crab | snail | mole | lamb | toad | hare | crow | seal | wolf
mood_adj =
  shy | hungry | sleepy | fat | thin | tired | lazy | brave | clever | rude | kind | proud | cross | merry | noisy
  muddy | gentle | wild | lonely | polite | bold | tame | silly | wise | slow | young | lost
thing =
  ball | kite | boat | book | drum | lamp | key | hat | bell | cup | box | coin | shell | flute | ring | map | clock
  spoon | rope | doll | broom | shoe | jar | bag | pan | pot | net | flag | bowl | plate | comb | coat | sock | fork
  mug | fan | cap | belt | tray | vase | horn | nail | cart | rug | pen | sled
things =
  balls | kites | boats | books | drums | lamps | keys | hats | bells | cups | boxes | coins | shells | flutes | rings
  maps | clocks | spoons | ropes | dolls | brooms | shoes | jars | bags | pans | pots | nets | flags | bowls | plates
  combs | coats | socks | forks | mugs | fans | caps | belts | trays | vases | horns | nails | carts | rugs | pens
  sleds
colour = red | blue | green | yellow | white | black | brown | grey | golden | silver | pink
adj =
  small | big | tiny | long | round | shiny | broken | dusty | heavy | soft | new | light | clean | wet | flat
  smooth | short | huge | pale | neat | hard | bent | sharp | rusty | thick | cheap | square | plain | lovely | pretty
  fine | dull | strong | tidy
landmark =
  bridge | tree | gate | fence | wall | barn | mill | well | bench | tower | shed | hedge | rock | pond | log | tent
  hut | castle | road | lake | river | church | hill | field | oak | path | door | bush | shop | arch | lane | ship
  inn | hall
spot_adj =
  old | tall | mossy | narrow | quiet | empty | sunny | shady | crooked | stony | hidden | busy | deep | wide | high
  grand | little | great | dark | far | leafy | windy | low | bare | steep | cosy | snug
did =
  found | made | sold | kept | took | broke | hid | washed | painted | carried | mended | liked | wanted | bought
  dropped | fixed | held | threw | cleaned | packed | loved | moved | tied | shook | pulled | pushed | lifted | kicked
  used | chose | stole | won | cut | filled | hung | lent | dried | wiped | emptied
went = walked | ran | skipped | crept | hopped | raced | rode | sped | marched | trotted
saw = saw | heard | drew | fed | chased | watched | hugged | followed
met = met | helped | thanked | called | asked | visited
near = by | near | under | behind | beside | at
past = past | around | over | to | under | by
sweet = cake | pie | honey | milk | apples | pears | plums | jam | figs | buns | tea | dates
plain = bread | soup | cheese | nuts | rice | corn | fish | eggs | toast | peas | ham | beans
number = two | three | four | five | six | seven | eight | nine | ten
skill = sing | swim | dance | jump | fly | climb | run | read | cook | paint | dig | hide
then = Then | Soon | Next | Later | Again | Now | First | At noon
mood = happy | glad | calm | pleased | thankful
comfort = warm | safe | full | dry | free
weather =
  rainy | cold | foggy | snowy | bright | stormy | misty | hot | mild | cloudy | clear | dry | frosty | chilly
  breezy
part = morning | day | afternoon | evening | night
rain = rain | snow | hail
)grammar";
}

}  // namespace tril
