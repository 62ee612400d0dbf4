// The engine against the oracle, on every instruction set of the machine: all options together, sizes around
// tiles, the same bits for any number of workers, and nothing of what a query does not see.
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <set>
#include <thread>

#include "iha/kernels/cpu/cut.h"
#include "tests/kernels/cpu_call.h"
#include "tests/kernels/cpu_isas.h"
#include "tests/kernels/trapped_tiles.h"

namespace iha::cpu {
namespace {

const char* name(Isa isa) {
  return name_of(isa).data();
}

// What a result may be off by, relative to the largest value of its tensor. Float32: sums of at most some 600
// terms (channels, then keys) grow roundings of 2^-24 like their root, 25, and exp turns score errors into
// relative ones of the same size; 64 covers the product. Bfloat16: the bound of the case files; operands are
// rounded to 2^-9 three times on the way. Float16 widens, so only parts and results are rounded, to 2^-12;
// parts enter gradients again.
double tolerance(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return std::ldexp(64.0, -24);
    case DType::kBFloat16:
      return 2e-2;
    default:
      return std::ldexp(8.0, -12);
  }
}

double largest(const std::vector<double>& values) {
  double most = 0;
  for (const double value : values) {
    if (std::isfinite(value)) most = std::max(most, std::abs(value));
  }
  return most;
}

void expect_near(const std::vector<double>& expected, const Tensor& found, double allowed,
                 const std::string& what) {
  ASSERT_EQ(static_cast<int64_t>(expected.size()), found.count()) << what;
  for (size_t i = 0; i < expected.size(); ++i) {
    const double value = found.get(static_cast<int64_t>(i));
    const bool equal =
        std::isinf(expected[i]) ? value == expected[i] : std::abs(value - expected[i]) <= allowed;
    ASSERT_TRUE(equal) << what << " element " << i << ": found " << value << ", expected " << expected[i]
                       << " +- " << allowed;
  }
}

struct Expected {
  reference::Outputs outputs;
  reference::Gradients gradients;
};
Expected by_oracle(const Call& call) {
  check(call.problem, "test");
  const Widened widened(call);
  return {reference::forward(call.problem, widened.inputs()),
          reference::backward(call.problem, widened.inputs(), widened.upstream())};
}

Results expect_forward_matches(const Call& call, const reference::Outputs& expected, Isa isa,
                               const ParallelFor& parallel) {
  const std::string what = text(name(isa), " ", name_of(call.dtype), " ", call.name);
  const double relative = tolerance(call.dtype);
  const Results results = run_forward(call, isa, parallel);
  const auto near = [&](const std::vector<double>& want, const Tensor& found, const char* tensor) {
    expect_near(want, found, relative * std::max(1.0, largest(want)), what + ": " + tensor);
  };
  near(expected.out, results.out, "out");
  near(expected.parts, results.parts, "parts");
  near(expected.lse, results.lse, "lse");
  return results;
}

void expect_matches(const Call& call, const Expected& expected, Isa isa, const ParallelFor& parallel) {
  const std::string what = text(name(isa), " ", name_of(call.dtype), " ", call.name);
  const double relative = tolerance(call.dtype);
  const Results results = expect_forward_matches(call, expected.outputs, isa, parallel);
  const GradientResults found = run_backward(call, results, isa, parallel);
  const reference::Gradients& g = expected.gradients;
  // A gradient that is zero but for rounding is measured by the others.
  double all = 1e-3;
  for (const auto* values : {&g.query, &g.key, &g.value, &g.alpha_q, &g.alpha_k, &g.alpha_v, &g.collapse,
                             &g.sinks, &g.mode_weights, &g.block_weights}) {
    all = std::max(all, largest(*values));
  }
  // Roundings of a sum over all rows grow like the root of their number; the bound has room for 16 rows.
  const Problem& p = call.problem;
  const double rows = static_cast<double>(p.batch * p.queries * p.pseudo_heads);
  const auto near_gradient = [&](const std::vector<double>& want, const Tensor& tensor, const char* of,
                                 double terms = 16) {
    // With 16-bit operands errors follow the terms of a sum, and a small gradient may be a sum that cancels.
    const bool small = largest(want) < 0.05 * all || call.dtype != DType::kFloat32;
    const double scale = std::max(2 * largest(want), small ? 0.5 * all : 0.0);
    expect_near(want, tensor, relative * scale * std::sqrt(std::max(1.0, terms / 16)), what + ": " + of);
  };
  near_gradient(g.query, found.query, "grad query");
  near_gradient(g.key, found.key, "grad key");
  near_gradient(g.value, found.value, "grad value");
  near_gradient(g.alpha_q, found.alpha_q, "grad alpha_q");
  near_gradient(g.alpha_k, found.alpha_k, "grad alpha_k");
  near_gradient(g.alpha_v, found.alpha_v, "grad alpha_v");
  near_gradient(g.collapse, found.collapse, "grad collapse");
  near_gradient(g.sinks, found.sinks, "grad sinks");
  near_gradient(g.mode_weights, found.mode_weights, "grad mode_weights", rows);
  near_gradient(g.block_weights, found.block_weights, "grad block_weights");
}

class EveryOption : public ::testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(CpuEngine, EveryOption,
                         ::testing::Values(DType::kFloat32, DType::kBFloat16, DType::kFloat16),
                         [](const auto& info) { return std::string(name_of(info.param)); });

TEST_P(EveryOption, MatchesOracle) {
  const int calls = GetParam() == DType::kFloat32 ? 150 : 60;
  for (int seed = 0; seed < calls && !HasFatalFailure(); ++seed) {
    const Call call = draw_call(seed, GetParam());
    const Expected expected = by_oracle(call);
    for (const Isa isa : tested_isas(GetParam())) expect_matches(call, expected, isa, serial());
  }
}

TEST_P(EveryOption, OfHeadsThatChooseMatchesOracle) {
  const int calls = GetParam() == DType::kFloat32 ? 100 : 40;
  for (int seed = 0; seed < calls && !HasFatalFailure(); ++seed) {
    const Call call = draw_call(seed, GetParam(), true);
    const Expected expected = by_oracle(call);
    for (const Isa isa : supported_isas()) expect_matches(call, expected, isa, serial());
  }
}

// A plain call: no options but those that `change` sets.
Call plain_call(int64_t queries, int64_t keys, int64_t heads, const char* pattern, DType dtype,
                const std::function<void(Problem&)>& change = {}) {
  Call call;
  call.dtype = dtype;
  Problem& p = call.problem;
  p.batch = 1;
  p.query_heads = p.key_heads = heads;
  p.queries = queries;
  p.keys = keys;
  p.head_dim = p.value_dim = 16;
  p.scale = 0.25;
  p.patterns = parse_patterns(pattern).expand(heads);
  p.query_offset = {keys - queries};
  if (change) change(p);
  PhiloxStream random(static_cast<uint64_t>(queries * 1000 + keys), 5);
  fill_call(call, random, false, false, false, false);
  call.name = text("queries ", queries, " keys ", keys, " ", pattern);
  return call;
}

// Groups of up to 32 rows, panels of 32, tiles of 128 rows, blocks of 256 and 512 keys, chunks of 512 rows.
TEST(CpuEngine, SizesAroundEveryTile) {
  const std::vector<std::pair<int64_t, int64_t>> sizes{
      {0, 0},   {0, 3},   {3, 0},   {1, 1},     {1, 600},   {7, 31},    {8, 32},   {9, 33},    {15, 15},
      {16, 17}, {31, 64}, {33, 40}, {127, 127}, {128, 128}, {129, 129}, {5, 255},  {6, 256},   {3, 257},
      {2, 511}, {1, 512}, {4, 513}, {511, 40},  {512, 40},  {513, 40},  {2, 1030}, {130, 1025}};
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
    for (const auto& [queries, keys] : sizes) {
      for (const char* pattern : {"global", "causal", "sliding:40"}) {
        const Call call = plain_call(queries, keys, 1, pattern, dtype);
        const Expected expected = by_oracle(call);
        for (const Isa isa : tested_isas(dtype)) expect_matches(call, expected, isa, serial());
        if (HasFatalFailure()) return;
      }
    }
  }
}

// Few queries with splits of keys, several ranges of keys in the backward pass, joined heads, many units:
// each way in which work is cut.
std::vector<Call> calls_of_every_cut(DType dtype) {
  std::vector<Call> calls;
  calls.push_back(plain_call(1, 2100, 4, "global*2,causal_sliding:700*2", dtype));
  calls.push_back(plain_call(3, 1100, 4, "causal", dtype, [](Problem& p) { p.key_heads = 1; }));
  // Apart from each other: first tokens and the window; in place, then packed.
  calls.push_back(plain_call(1, 2100, 2, "causal_sliding:900+first:70", dtype));
  calls.push_back(plain_call(1, 2100, 2, "causal_sliding:900+first:70", dtype,
                             [](Problem& p) { p.rope.kind = RopeKind::kToken; }));
  calls.push_back(plain_call(1, 700, 2, "causal_sliding:300+first:50,sliding:250+first:9", dtype,
                             [](Problem& p) { p.pseudo_heads = 3; }));
  calls.push_back(plain_call(700, 700, 1, "causal", dtype));
  calls.push_back(plain_call(90, 90, 3, "causal_strided:4,every:5,strided:3", dtype, [](Problem& p) {
    p.batch = 4;
    p.query_offset.assign(4, 0);
  }));
  // First tokens before each class: more and fewer than a panel, past a sequence's end, over two ranges.
  calls.push_back(plain_call(90, 90, 4,
                             "causal_strided:4+first:9,every:5+first:3,strided:3+first:40,strided:8+first:1",
                             dtype, [](Problem& p) {
                               p.batch = 3;
                               p.key_lengths = {90, 2, 31};
                               p.query_offset = {0, -3, 7};
                             }));
  calls.push_back(plain_call(70, 90, 2, "strided:4+first:9,causal_every:5+first:3", dtype, [](Problem& p) {
    p.pseudo_heads = 2;
    p.rope.kind = RopeKind::kVirtual;
    p.dropout_p = 0.3;
  }));
  calls.push_back(plain_call(700, 700, 2, "strided:8+first:400", dtype, [](Problem& p) { p.key_heads = 1; }));
  // Heads that choose: chunks of 1024 and 4096 rows, ranges of keys that are whole blocks, joined heads.
  calls.push_back(plain_call(1100, 1100, 1, "causal_dynamic:64:3", dtype));
  calls.push_back(
      plain_call(90, 700, 9, "dynamic:40:2*5,learned(causal_sliding:100|strided:8|global)*4", dtype));
  calls.push_back(plain_call(
      700, 700, 2, "learned(causal|causal_strided:8|causal_sliding:64),learned(strided:4|strided:6)", dtype,
      [](Problem& p) { p.key_heads = 1; }));
  Call choosing =
      plain_call(300, 300, 3, "causal_dynamic:24:2,learned(causal|sliding:9),causal", dtype, [](Problem& p) {
        p.pseudo_heads = 3;
        p.collapse = CollapseKind::kGlobal;
        p.rope.kind = RopeKind::kVirtual;
      });
  PhiloxStream drawn(4, 9);
  fill_call(choosing, drawn, true, true, true, true);
  calls.push_back(std::move(choosing));
  Call joined = plain_call(300, 300, 2, "causal,sliding:9", dtype, [](Problem& p) {
    p.pseudo_heads = 3;
    p.collapse = CollapseKind::kGlobal;
    p.rope.kind = RopeKind::kVirtual;
  });
  PhiloxStream random(3, 9);
  fill_call(joined, random, true, true, true, true);
  calls.push_back(std::move(joined));
  Call split = plain_call(2, 900, 2, "global", dtype, [](Problem& p) {
    p.pseudo_heads = 2;
    p.layout = Layout::kParallel;
    p.collapse = CollapseKind::kGlobal;
    p.dropout_p = 0.2;
  });
  calls.push_back(std::move(split));
  return calls;
}

// Backward: queries in parts, of a group, of streams, of a learned head, of many units, three of them, and
// beside heads that take all at once.
std::vector<Call> calls_of_query_parts(DType dtype) {
  std::vector<Call> calls;
  calls.push_back(plain_call(1030, 300, 4, "global", dtype, [](Problem& p) {
    p.key_heads = 1;
    p.query_offset = {-730};
  }));
  calls.push_back(plain_call(2050, 300, 1, "causal", dtype, [](Problem& p) {
    p.pseudo_heads = 2;
    p.layout = Layout::kParallel;
  }));
  calls.push_back(plain_call(4100, 270, 1, "learned(global|causal)", dtype));
  calls.push_back(plain_call(4100, 20, 1, "global", dtype, [](Problem& p) {
    p.batch = 8;
    p.query_offset.assign(8, 0);
  }));
  calls.push_back(plain_call(8200, 40, 1, "global", dtype));
  calls.push_back(plain_call(4130, 64, 4, "strided:8,global,sliding:9,dynamic:16:1", dtype));
  Call long_queries = plain_call(2050, 260, 2, "global,sliding:100", dtype, [](Problem& p) {
    p.pseudo_heads = 2;
    p.query_offset = {-900};
  });
  PhiloxStream drawn_last(6, 9);
  fill_call(long_queries, drawn_last, true, true, true, true);
  calls.push_back(std::move(long_queries));
  return calls;
}

std::vector<Call> calls_of_cuts_and_parts(DType dtype) {
  std::vector<Call> calls = calls_of_every_cut(dtype);
  for (Call& call : calls_of_query_parts(dtype)) calls.push_back(std::move(call));
  return calls;
}

TEST(CpuEngine, EveryCutOfTheWorkMatchesOracle) {
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
    for (const Call& call : calls_of_cuts_and_parts(dtype)) {
      const Expected expected = by_oracle(call);
      for (const Isa isa : tested_isas(dtype)) expect_matches(call, expected, isa, serial());
      if (HasFatalFailure()) return;
    }
  }
}

bool same_bits(const Tensor& left, const Tensor& right) {
  return left.bytes == right.bytes;
}

// `workers` threads that take tasks in an order of their own.
ParallelFor shuffled(int workers) {
  const ParallelFor pool = thread_pool(workers);
  return {workers, [pool](int64_t tasks, const ParallelFor::Body& body) {
            pool.run(tasks, [&](int64_t task, int worker) { body(tasks - 1 - task, worker); });
          }};
}

TEST(CpuEngine, SameBitsForAnyNumberOfWorkers) {
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
    std::vector<Call> calls = calls_of_cuts_and_parts(dtype);
    for (int seed = 300; seed < 312; ++seed) calls.push_back(draw_call(seed, dtype));
    for (int seed = 300; seed < 312; ++seed) calls.push_back(draw_call(seed, dtype, true));
    for (const Call& call : calls) {
      for (const Isa isa : tested_isas(dtype)) {
        const Results one = run_forward(call, isa, serial());
        const GradientResults one_back = run_backward(call, one, isa, serial());
        for (const int workers : {2, 3, 7}) {
          const ParallelFor parallel = shuffled(workers);
          const Results many = run_forward(call, isa, parallel);
          ASSERT_TRUE(same_bits(one.out, many.out) && same_bits(one.parts, many.parts) &&
                      same_bits(one.lse, many.lse))
              << name(isa) << " " << workers << " workers, " << call.name;
          const GradientResults back = run_backward(call, many, isa, parallel);
          const Tensor GradientResults::*members[] = {
              &GradientResults::query,        &GradientResults::key,     &GradientResults::value,
              &GradientResults::alpha_q,      &GradientResults::alpha_k, &GradientResults::alpha_v,
              &GradientResults::collapse,     &GradientResults::sinks,   &GradientResults::mode_weights,
              &GradientResults::block_weights};
          for (const auto member : members) {
            ASSERT_TRUE(same_bits(one_back.*member, back.*member))
                << name(isa) << " " << workers << " workers, gradients of " << call.name;
          }
        }
      }
    }
  }
}

// Every task of the engine that multiplies has made the tiles ready, on its own thread: else the compiled
// code of AMX, and its emulation, end at an invalid instruction.
TEST(CpuEngine, CompiledAmxCodeGivesTheEmulationsBitsOnManyWorkers) {
  if (tested_isas(DType::kBFloat16).back() != Isa::kEmulatedAmx) GTEST_SKIP() << "needs AVX-512 BF16";
  const auto trapped = trap_where_needed();
  for (const Call& call : calls_of_every_cut(DType::kBFloat16)) {
    const ParallelFor parallel = shuffled(3);
    const Results results = run_forward(call, Isa::kAmxBf16, parallel),
                  expected = run_forward(call, Isa::kEmulatedAmx, parallel);
    ASSERT_TRUE(same_bits(results.parts, expected.parts) && same_bits(results.lse, expected.lse))
        << call.name;
    const GradientResults found = run_backward(call, results, Isa::kAmxBf16, parallel),
                          wanted = run_backward(call, results, Isa::kEmulatedAmx, parallel);
    ASSERT_TRUE(same_bits(found.query, wanted.query) && same_bits(found.key, wanted.key) &&
                same_bits(found.value, wanted.value))
        << call.name;
  }
}

// Puts `value` into all channels of one token of every head.
void plant(Tensor& tensor, int64_t token, double value) {
  for (int64_t i = 0; i < tensor.count(); ++i) {
    if (i / tensor.sizes[3] % tensor.sizes[2] == token) tensor.set(i, value);
  }
}

// True where pseudo-query (i, p) of head h sees a pseudo-key of token j.
bool sees(const Call& call, const Visibility& visible, int64_t b, int64_t h, int64_t i, int64_t pseudo,
          int64_t j) {
  for (int64_t r = 0; r < call.problem.pseudo_heads; ++r) {
    if (weighs(call, visible, b, h, i, pseudo, j, r)) return true;
  }
  return false;
}
bool any_head_sees(const Call& call, const Visibility& visible, int64_t b, int64_t i, int64_t j) {
  const Problem& p = call.problem;
  for (int64_t h = 0; h < p.query_heads; ++h) {
    for (int64_t pseudo = 0; pseudo < p.pseudo_heads; ++pseudo) {
      if (sees(call, visible, b, h, i, pseudo, j)) return true;
    }
  }
  return false;
}

bool same_row(const Tensor& left, const Tensor& right, int64_t row, int64_t width) {
  for (int64_t c = 0; c < width; ++c) {
    const double a = left.get(row * width + c), b = right.get(row * width + c);
    if (std::memcmp(&a, &b, sizeof a) != 0) return false;
  }
  return true;
}

// Few queries that read keys and values in place: `rows` of the tile are query heads of a group times
// queries.
Call few_call(int64_t queries, int64_t group, int64_t keys, int64_t width, const char* pattern, DType dtype,
              const std::function<void(Problem&)>& change = {}) {
  Call call = plain_call(queries, keys, 2 * group, pattern, dtype, [&](Problem& p) {
    p.key_heads = 2;
    p.head_dim = width;
    p.value_dim = width > 24 ? width - 8 : width + 3;
    if (change) change(p);
  });
  // Channels side by side, heads between tokens or not.
  const Problem& p = call.problem;
  PhiloxStream random(static_cast<uint64_t>(keys), 6);
  const std::vector<int> order = keys % 2 == 0 ? std::vector<int>{0, 2, 1, 3} : std::vector<int>{0, 1, 2, 3};
  call.key = Tensor({p.batch, p.key_heads, p.keys, p.head_dim}, dtype, order);
  call.value = Tensor({p.batch, p.key_heads, p.keys, p.value_dim}, dtype, order);
  fill_normal(call.key, random, 1.0);
  fill_normal(call.value, random, 1.0);
  call.name = text("group ", group, " width ", width, " ", call.name);
  return call;
}

std::function<void(Problem&)> with_key_heads(int64_t count) {
  return [count](Problem& p) { p.key_heads = count; };
}

Cut cut_of(const Call& call, Isa isa) {
  const core::AttentionInputs inputs = call.inputs();
  return Cut(Plan(call.problem, inputs, isa));
}

// Every number of rows of the register tiles, panels of 32, blocks of 512 and ranges of 1024 keys, widths
// around every vector.
std::vector<Call> few_calls(DType dtype) {
  std::vector<Call> calls;
  const int64_t keys[] = {1, 2, 31, 32, 33, 64, 100, 255, 511, 512, 513, 1023, 1025, 1100};
  const int64_t widths[] = {1, 5, 8, 16, 24, 31, 32, 33, 48, 64, 80, 128, 136};
  int number = 0;
  for (const int64_t group : {1, 2, 3, 4, 7, 8, 16, 32}) {
    for (const char* pattern : {"global", "causal_sliding:40", "sliding:700", "causal_sliding:33+first:3"}) {
      for (int i = 0; i < 3; ++i, ++number) {
        calls.push_back(few_call(1, group, keys[number % 14], widths[number % 13], pattern, dtype));
      }
    }
  }
  for (const auto& [queries, group] :
       std::vector<std::pair<int64_t, int64_t>>{{2, 1}, {3, 4}, {5, 3}, {8, 4}, {9, 1}}) {
    for (const char* pattern : {"causal", "causal_sliding:40", "window:70:3", "chunked:50"}) {
      calls.push_back(few_call(queries, group, 520 + queries, 40, pattern, dtype));
    }
  }
  for (const char* pattern : {"strided:70", "every:90", "strided:5", "strided:3+first:2"}) {
    calls.push_back(few_call(1, 4, 1000, 32, pattern, dtype));
  }
  // Lengths, offsets, documents; dropout and sinks.
  calls.push_back(few_call(1, 4, 600, 64, "global*4,causal_sliding:100*4", dtype, [](Problem& p) {
    p.batch = 4;
    p.key_lengths = {0, 1, 333, 600};
    p.query_offset = {0, 0, 332, 599};
  }));
  calls.push_back(few_call(1, 4, 600, 64, "causal*4,causal_sliding:100+first:5*4", dtype, [](Problem& p) {
    for (int64_t j = 0; j < p.keys; ++j) p.documents.push_back(j % 7 == 0 ? 1 : j / 250);
  }));
  // Heads that lie side by side take turns: 2 and 7 of them, of several rows, patterns, gaps and masks.
  calls.push_back(few_call(1, 4, 1100, 136, "causal", dtype));
  calls.push_back(few_call(1, 7, 1100, 136, "global", dtype, with_key_heads(7)));
  calls.push_back(few_call(2, 2, 1102, 136, "causal", dtype));
  calls.push_back(few_call(1, 4, 1102, 136, "causal*2,global*2,causal*4", dtype));
  calls.push_back(few_call(1, 2, 1104, 136, "causal_sliding:900+first:70", dtype));
  calls.push_back(few_call(1, 4, 1104, 136, "causal", dtype, [](Problem& p) {
    p.batch = 3;
    p.key_lengths = {1104, 7, 800};
    p.query_offset = {1103, 6, 799};
    p.dropout_p = 0.3;
  }));
  calls.push_back(few_call(1, 4, 1104, 136, "causal", dtype, [](Problem& p) {
    for (int64_t j = 0; j < p.keys; ++j) p.documents.push_back(j % 7 == 0 ? 1 : j / 500);
  }));
  calls.push_back(few_call(3, 2, 1200, 32, "causal", dtype, [](Problem& p) {
    p.dropout_p = 0.3;
    p.dropout_seed = 4;
    p.scale = -0.3;
    p.query_offset = {900};
  }));
  Call sinks = few_call(1, 2, 700, 32, "global", dtype, [](Problem& p) { p.scale = 0; });
  sinks.sinks = Tensor({sinks.problem.query_heads}, DType::kFloat32);
  PhiloxStream random(12);
  fill_normal(sinks.sinks, random, 2.0);
  calls.push_back(std::move(sinks));
  return calls;
}

TEST(CpuEngine, FewQueriesMatchOracleForAnyNumberOfWorkers) {
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
    std::set<int64_t> turns;
    for (const Call& call : few_calls(dtype)) {
      check(call.problem, "test");
      for (const Turns& task : cut_of(call, Isa::kPortable).turns) turns.insert(task.end - task.begin);
      const Widened widened(call);
      const reference::Outputs expected = reference::forward(call.problem, widened.inputs());
      for (const Isa isa : tested_isas(dtype)) {
        const bool slow = isa == Isa::kPortable && dtype == DType::kFloat16;
        ASSERT_TRUE(slow || cut_of(call, isa).unpacked) << call.name;
        const Results one = expect_forward_matches(call, expected, isa, serial());
        if (HasFatalFailure()) return;
        for (const int workers : {2, 3, 7}) {
          const Results many = run_forward(call, isa, shuffled(workers));
          ASSERT_TRUE(same_bits(one.out, many.out) && same_bits(one.lse, many.lse)) << call.name;
        }
      }
    }
    EXPECT_TRUE(turns.contains(1) && turns.contains(2) && *turns.rbegin() >= 3) << name_of(dtype);
  }
}

// A windowed head reads the panels of its window, whatever the number of keys; what needs packing is packed.
TEST(CpuEngine, FewQueriesReadTheirWindow) {
  const auto keys_read = [](const Cut& cut, int64_t batch, int64_t slice) {
    int64_t count = 0;
    for (const Split& split : cut.splits)
      count += split.batch == batch && split.slice == slice ? split.keys.count : 0;
    return count;
  };
  for (const Isa isa : supported_isas()) {
    const Cut cut = cut_of(few_call(1, 4, 5000, 16, "causal_sliding:1500*4,causal*4", DType::kFloat32), isa);
    EXPECT_LE(keys_read(cut, 0, 0), 1501 + 2 * 32);
    EXPECT_GE(keys_read(cut, 0, 0), 1501);
    EXPECT_EQ(keys_read(cut, 0, 1), 5000);
    const auto unpacked = [&](const std::function<void(Problem&)>& change) {
      return cut_of(few_call(1, 2, 600, 16, "causal", DType::kFloat32, change), isa).unpacked;
    };
    EXPECT_TRUE(unpacked([](Problem&) {}));
    EXPECT_FALSE(unpacked([](Problem& p) { p.rope.kind = RopeKind::kToken; }));
    EXPECT_FALSE(unpacked([](Problem& p) { p.pseudo_heads = 2; }));
    EXPECT_FALSE(cut_of(few_call(17, 2, 600, 16, "causal", DType::kFloat32), isa).unpacked);
  }
}

// Heads whose keys and values lie side by side, and that see the same keys, are read together.
TEST(CpuEngine, FewQueriesOfNeighbouringHeadsTakeTurns) {
  const auto turns_of = [](const Call& call) {
    const Cut cut = cut_of(call, Isa::kPortable);
    std::vector<int64_t> sizes;
    int64_t next = 0;
    for (const Turns& task : cut.turns) {
      EXPECT_EQ(task.begin, next);
      EXPECT_TRUE(task.end - task.begin == 1 || task.panels == 1) << task.panels;
      next = task.end;
      sizes.push_back(task.end - task.begin);
    }
    EXPECT_EQ(next, static_cast<int64_t>(cut.splits.size()));
    return std::set<int64_t>(sizes.begin(), sizes.end());
  };
  using Sizes = std::set<int64_t>;
  // few_call lays an even number of keys out by tokens, an odd one by heads. A panel of a head takes 17.5 KB.
  EXPECT_EQ(turns_of(few_call(1, 4, 4096, 72, "causal", DType::kFloat32)), Sizes{2});
  EXPECT_EQ(turns_of(few_call(1, 4, 4096, 72, "causal*4,global*4", DType::kFloat32)), Sizes{2});
  EXPECT_EQ(turns_of(few_call(1, 7, 4096, 72, "causal", DType::kFloat32, with_key_heads(7))), Sizes{7});
  EXPECT_EQ(turns_of(few_call(1, 9, 4096, 72, "causal", DType::kFloat32, with_key_heads(9))), (Sizes{4, 5}));
  EXPECT_EQ(turns_of(few_call(1, 4, 4097, 72, "causal", DType::kFloat32)), Sizes{1});
  EXPECT_EQ(turns_of(few_call(1, 4, 4096, 72, "causal*4,causal_sliding:100*4", DType::kFloat32)), Sizes{1});
  EXPECT_EQ(turns_of(few_call(1, 4, 4096, 64, "causal", DType::kFloat32)), Sizes{1});   // small rows
  EXPECT_EQ(turns_of(few_call(1, 4, 4096, 520, "causal", DType::kFloat32)), Sizes{1});  // large ones
}

// NaN, inf and another number as key and value of one token: rows that do not see it keep every bit.
TEST(CpuEngine, FewQueriesNeverSeeHiddenKeys) {
  int untouched = 0, touched = 0;
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
    const std::vector<Call> calls = few_calls(dtype);
    for (size_t i = 0; i < calls.size(); i += 2) {
      const Call& call = calls[i];
      const Problem& p = call.problem;
      const Visibility visible(p);
      for (const Isa isa : tested_isas(dtype)) {
        const Results before = run_forward(call, isa, serial());
        for (const int64_t j : {p.keys / 3, p.keys - 1}) {
          for (const double value : {2.5, std::nan(""), static_cast<double>(-INFINITY)}) {
            Call changed = call;
            plant(changed.key, j, value);
            plant(changed.value, j, value);
            const Results after = run_forward(changed, isa, serial());
            for (int64_t row = 0; row < p.batch * p.query_heads * p.queries; ++row) {
              const int64_t b = row / (p.query_heads * p.queries), h = row / p.queries % p.query_heads;
              if (visible(b, h, row % p.queries, 0, j, 0)) {
                ++touched;
                ASSERT_EQ(std::isnan(after.lse.get(row)),
                          std::isnan(value) || std::isnan(after.lse.get(row)));
                continue;
              }
              ++untouched;
              ASSERT_TRUE(same_row(before.out, after.out, row, p.value_dim) &&
                          same_row(before.lse, after.lse, row, 1))
                  << name(isa) << " key " << j << " = " << value << " reaches row " << row << ", "
                  << call.name;
            }
          }
        }
      }
    }
  }
  EXPECT_GT(untouched, 1000);
  EXPECT_GT(touched, 1000);
}

// A mixture of two finite values that is finite in float32 and not in bfloat16.
// Of values, forward, and of gradients of outputs, backward; float32 holds both.
TEST(CpuEngine, MixturesThatRoundToInfinityStayHidden) {
  Call call = plain_call(40, 40, 2, "causal", DType::kBFloat16,
                         [](Problem& p) { p.collapse = CollapseKind::kGlobal; });
  for (Tensor* weights : {&call.alpha_v, &call.collapse}) {
    *weights = Tensor({2, 2, 1}, DType::kBFloat16);
    for (int64_t i = 0; i < 4; ++i) weights->set(i, 1.0);
  }
  const auto plant_token = [](Tensor& tensor, int64_t token) {
    tensor.set(token * 16, 3.3895e38);  // the largest bfloat16
    tensor.set((40 + token) * 16, 1e36);
  };
  for (int64_t head = 0; head < 2; ++head) call.value.set(head * 40 * 16, 0.25);  // the row term stays finite
  Call last_value = call, first_gradient = call;
  plant_token(last_value.value, 39);
  plant_token(first_gradient.grad_out, 0);
  for (const Isa isa : tested_isas(DType::kBFloat16)) {
    const Results before = run_forward(call, isa, serial()), after = run_forward(last_value, isa, serial());
    const GradientResults back = run_backward(call, before, isa, serial()),
                          back_after = run_backward(first_gradient, before, isa, serial());
    for (int64_t row = 0; row < 80; ++row) {
      if (row % 40 != 39) {
        ASSERT_TRUE(same_row(before.out, after.out, row, 16)) << name(isa) << " row " << row;
      }
      if (row % 40 != 0) {
        ASSERT_TRUE(same_row(back.key, back_after.key, row, 16)) << name(isa) << " key " << row;
        ASSERT_TRUE(same_row(back.value, back_after.value, row, 16)) << name(isa) << " value " << row;
      }
    }
  }
}

// Another number, NaN and inf as key and value of token j: no bit of what does not see j changes.
TEST(CpuEngine, HiddenKeysNeverReachAQuery) {
  int untouched = 0, touched = 0;
  for (int seed = 500; seed < 540; ++seed) {
    for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
      const Call call = draw_call(seed, dtype, seed % 2 == 1);
      const Problem& p = call.problem;
      if (p.keys == 0 || p.queries == 0) continue;
      const Visibility visible(p);
      const int64_t j = (seed * 7) % p.keys;
      for (const double value : {2.5, std::nan(""), static_cast<double>(INFINITY)}) {
        Call changed = call;
        plant(changed.key, j, value);
        plant(changed.value, j, value);
        for (const Isa isa : tested_isas(dtype)) {
          const Results before = run_forward(call, isa, serial()),
                        after = run_forward(changed, isa, serial());
          const GradientResults back = run_backward(call, before, isa, serial()),
                                back_after = run_backward(changed, after, isa, serial());
          for (int64_t b = 0; b < p.batch; ++b) {
            for (int64_t h = 0; h < p.query_heads; ++h) {
              for (int64_t i = 0; i < p.queries; ++i) {
                for (int64_t pseudo = 0; pseudo < p.pseudo_heads; ++pseudo) {
                  const int64_t row = ((b * p.query_heads + h) * p.queries + i) * p.pseudo_heads + pseudo;
                  if (sees(call, visible, b, h, i, pseudo, j)) {
                    ++touched;
                    EXPECT_EQ(std::isnan(value), std::isnan(value) && std::isnan(after.lse.get(row)));
                    continue;
                  }
                  ++untouched;
                  ASSERT_TRUE(same_row(before.parts, after.parts, row, p.value_dim) &&
                              same_row(before.lse, after.lse, row, 1))
                      << name(isa) << " key " << j << " = " << value << " reaches query " << i << " of head "
                      << h << ", " << call.name;
                }
                if (any_head_sees(call, visible, b, i, j)) continue;
                ASSERT_TRUE(
                    same_row(before.out, after.out, (b * p.query_heads + h) * p.queries + i, p.value_dim))
                    << name(isa) << " key " << j << " = " << value << " reaches the output of query " << i
                    << ", " << call.name;
                ASSERT_TRUE(same_row(back.query, back_after.query, (b * p.query_heads + h) * p.queries + i,
                                     p.head_dim))
                    << name(isa) << " key " << j << " = " << value << " reaches the gradient of query " << i
                    << ", " << call.name;
              }
            }
          }
        }
      }
    }
  }
  EXPECT_GT(untouched, 1000);
  EXPECT_GT(touched, 1000);
}

// The same for queries and their upstream gradients: keys that a query does not see get nothing of it.
TEST(CpuEngine, AQueryNeverReachesKeysHiddenToIt) {
  int untouched = 0;
  for (int seed = 600; seed < 640; ++seed) {
    for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
      const Call call = draw_call(seed, dtype, seed % 2 == 1);
      const Problem& p = call.problem;
      if (p.keys == 0 || p.queries == 0) continue;
      const Visibility visible(p);
      const int64_t i = (seed * 5) % p.queries;
      for (const double value : {2.5, std::nan("")}) {
        Call changed = call;
        plant(changed.query, i, value);
        plant(changed.grad_out, i, value);
        for (const Isa isa : tested_isas(dtype)) {
          const GradientResults back = run_backward(call, run_forward(call, isa, serial()), isa, serial());
          const GradientResults after =
              run_backward(changed, run_forward(changed, isa, serial()), isa, serial());
          for (int64_t b = 0; b < p.batch; ++b) {
            for (int64_t j = 0; j < p.keys; ++j) {
              if (any_head_sees(call, visible, b, i, j)) continue;
              for (int64_t h = 0; h < p.key_heads; ++h) {
                const int64_t row = (b * p.key_heads + h) * p.keys + j;
                ++untouched;
                ASSERT_TRUE(same_row(back.key, after.key, row, p.head_dim) &&
                            same_row(back.value, after.value, row, p.value_dim))
                    << name(isa) << " query " << i << " = " << value << " reaches key " << j << ", "
                    << call.name;
              }
            }
          }
        }
      }
    }
  }
  EXPECT_GT(untouched, 1000);
}

// Gradients of inputs alone, of alpha alone, and upstream gradients of which only one is there.
TEST(CpuEngine, AbsentArraysAreNeitherReadNorWritten) {
  Call call = draw_call(1, DType::kFloat32);
  for (int seed = 2; !(call.alpha_q.present() && call.alpha_k.present() && call.collapse.present()); ++seed) {
    call = draw_call(seed, DType::kFloat32);
  }
  call.grad_parts = Tensor();
  call.grad_lse = Tensor();
  const Results results = run_forward(call, supported_isas().back(), serial());
  const GradientResults all = run_backward(call, results, supported_isas().back(), serial());
  Tensor key(call.key.sizes, call.dtype, {0, 2, 1, 3}), alpha_k(call.alpha_k.sizes, call.alpha_k.dtype);
  core::AttentionGradients some;
  some.key = key.target();
  some.alpha_k = alpha_k.target();
  backward(call.problem, call.inputs(),
           {results.parts.array(), results.lse.array(), call.grad_out.array(), {}, {}}, some, serial(),
           supported_isas().back());
  EXPECT_TRUE(same_bits(key, all.key));
  EXPECT_TRUE(same_bits(alpha_k, all.alpha_k));

  call.grad_out = Tensor();
  call.grad_lse = Tensor(results.lse.sizes, DType::kFloat32);
  PhiloxStream random(8);
  fill_normal(call.grad_lse, random, 1.0);
  const Expected expected = by_oracle(call);
  for (const Isa isa : supported_isas()) expect_matches(call, expected, isa, serial());
}

}  // namespace
}  // namespace iha::cpu
