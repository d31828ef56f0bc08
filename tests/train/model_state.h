// A model file's state changed in place, as another version of the program would have written it.
#pragma once

#include <regex>
#include <string>
#include <vector>

#include "support/catch.h"
#include "train/model/safetensors.h"

namespace tril::test {

inline void rewrite_state(const std::string& path, const std::regex& what, const std::string& by) {
  const Safetensors file = read_safetensors(path);
  std::vector<SafetensorsTensor> tensors;
  for (const SafetensorsEntry& entry : file.entries)
    tensors.push_back({entry.name, entry.dtype, entry.shape, file.data.data() + entry.begin});
  auto metadata = file.metadata;
  std::string& state = metadata.at("tril.state");
  REQUIRE(std::regex_search(state, what));
  state = std::regex_replace(state, what, by);
  write_safetensors(path, tensors, metadata);
}

}  // namespace tril::test
