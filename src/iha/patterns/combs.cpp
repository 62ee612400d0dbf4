#include "iha/patterns/combs.h"

#include <algorithm>
#include <numeric>

#include "iha/patterns/arithmetic.h"

namespace iha {
namespace {

// Products of two moduli.
__extension__ using Wide = __int128;

int64_t size(const Comb& comb) {
  return multiples_in(comb.begin - comb.residue, comb.end - comb.residue, comb.modulus);
}

Comb token(int64_t at, int64_t begin, int64_t end) {
  return begin <= at && at < end ? Comb{at, at + 1, 0, 1} : Comb{begin, begin, 0, 1};
}

// The same tokens with a modulus below the range's length: those that hold one token become a range.
Comb reduced(const Comb& comb) {
  if (comb.end <= comb.begin) return {comb.begin, comb.begin, 0, 1};
  if (comb.modulus < comb.end - comb.begin) return comb;
  const int64_t ahead = floor_mod(comb.residue - comb.begin % comb.modulus, comb.modulus);
  return token(add_saturated(comb.begin, ahead), comb.begin, comb.end);
}

// x with a x = 1 mod m, for a and m without a common factor.
int64_t inverse(int64_t a, int64_t m) {
  int64_t old_rest = a % m, rest = m, old_factor = 1, factor = 0;
  while (rest != 0) {
    const int64_t quotient = old_rest / rest;
    std::swap(old_rest, rest);
    rest -= quotient * old_rest;
    std::swap(old_factor, factor);
    factor -= quotient * old_factor;
  }
  return floor_mod(old_factor, m);
}

// Both reduced. By the Chinese remainder theorem.
Comb meet(const Comb& a, const Comb& b) {
  const int64_t begin = std::max(a.begin, b.begin), end = std::min(a.end, b.end);
  const int64_t common = std::gcd(a.modulus, b.modulus), apart = b.residue - a.residue;
  if (end <= begin || apart % common != 0) return {begin, begin, 0, 1};
  const int64_t rest = b.modulus / common;
  const Wide steps = Wide{floor_mod(apart / common, rest)} * inverse(a.modulus / common, rest) % rest;
  const Wide residue = a.residue + a.modulus * steps, modulus = Wide{a.modulus} * rest;
  if (modulus < end) {
    return reduced({begin, end, static_cast<int64_t>(residue), static_cast<int64_t>(modulus)});
  }
  return residue < end ? token(static_cast<int64_t>(residue), begin, end) : Comb{begin, begin, 0, 1};
}

// Tokens of `whole` in any of combs[next..]: those in the first of them, less those that are in a later one
// too, and so on.
int64_t in_any(const std::vector<Comb>& combs, std::size_t next, const Comb& whole) {
  int64_t tokens = 0;
  for (; next < combs.size(); ++next) {
    const Comb both = meet(whole, combs[next]);
    const int64_t own = size(both);
    if (own > 0) tokens += own - in_any(combs, next + 1, both);
  }
  return tokens;
}

}  // namespace

int64_t tokens_in_any(const std::vector<Comb>& combs) {
  std::vector<Comb> ranges, others;
  int64_t end = 0;
  for (const Comb& comb : combs) {
    const Comb own = reduced(comb);
    if (own.end > own.begin) (own.modulus == 1 ? ranges : others).push_back(own);
    end = std::max(end, own.end);
  }
  std::sort(ranges.begin(), ranges.end(), [](const Comb& a, const Comb& b) { return a.begin < b.begin; });
  int64_t tokens = 0, at = 0;  // up to `at` all is counted
  const auto gap_until = [&](int64_t next) {
    if (at < next && !others.empty()) tokens += in_any(others, 0, {at, next, 0, 1});
    at = std::max(at, next);
  };
  for (const Comb& range : ranges) {
    gap_until(range.begin);
    tokens += std::max<int64_t>(0, range.end - at);
    at = std::max(at, range.end);
  }
  gap_until(end);
  return tokens;
}

}  // namespace iha
