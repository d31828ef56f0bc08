#include <string>

#include "nn/decode.h"
#include "nn/gpt.h"
#include "train/base/log.h"
#include "train/data/tokenizer.h"
#include "train/model/model_file.h"

int main() {
  const tril::Tokenizer tokenizer = tril::Tokenizer::characters_of("abc", "three letters");
  tril::ParamStore store;
  const tril::GptConfig config{.vocabulary = tokenizer.size(), .context = 8, .layers = 1, .heads = 1, .width = 8};
  const tril::Gpt model(store, config);
  store.freeze();
  tril::Decoder decoder(model);
  tril::Log log;
  log.note(tril::cat("logits: ", decoder.feed(tokenizer.start_token()).size()));
  try {
    (void)tril::load_model("nowhere.safetensors");
  } catch (const tril::Error& error) { log.error(error.what()); }
}
