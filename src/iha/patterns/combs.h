// Sets of tokens that are every K-th of a range, and how many tokens lie in any of several: what a learned
// pattern's candidates show one query.
#pragma once

#include <cstdint>
#include <vector>

namespace iha {

// Tokens t of [begin, end) with t mod modulus = residue; 0 <= begin, modulus >= 1, 0 <= residue < modulus.
struct Comb {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t residue = 0;
  int64_t modulus = 1;
};

// How many tokens lie in at least one of them. Ranges (modulus 1) cost nothing to join; n others cost up to
// 2^n intersections.
int64_t tokens_in_any(const std::vector<Comb>& combs);

}  // namespace iha
