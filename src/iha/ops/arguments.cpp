#include "iha/ops/arguments.h"

#include <ATen/ATen.h>

#include <cmath>
#include <map>

#include "iha/patterns/parse.h"

namespace iha::ops {
namespace {

template <class Value>
Value choice(const std::string& word, const std::map<std::string, Value>& choices, std::string_view name,
             std::string_view what) {
  const auto found = choices.find(word);
  if (found != choices.end()) return found->second;
  std::string expected;
  for (const auto& [known, value] : choices) expected += (expected.empty() ? "" : " or ") + known;
  TORCH_CHECK_VALUE(false, name, ": ", what, " is '", word, "', expected ", expected);
}

Layout layout_of(const Arguments& arguments, std::string_view name) {
  return choice<Layout>(arguments.layout,
                        {{"interleaved", Layout::kInterleaved}, {"parallel", Layout::kParallel}}, name,
                        "layout");
}
Order order_of(const Arguments& arguments, std::string_view name) {
  return choice<Order>(arguments.order, {{"flat", Order::kFlat}, {"token", Order::kToken}}, name, "order");
}
RopeKind rope_of(const Arguments& arguments, std::string_view name) {
  return choice<RopeKind>(
      arguments.rope,
      {{"none", RopeKind::kNone}, {"token", RopeKind::kToken}, {"virtual", RopeKind::kVirtual}}, name,
      "rope");
}
RopeStyle style_of(const Arguments& arguments, std::string_view name) {
  return choice<RopeStyle>(arguments.rope_style,
                           {{"half", RopeStyle::kHalf}, {"adjacent", RopeStyle::kAdjacent}}, name,
                           "rope_style");
}

using Shape = std::vector<c10::SymInt>;

bool same(c10::SymIntArrayRef found, const Shape& expected) {
  if (found.size() != expected.size()) return false;
  for (size_t at = 0; at < expected.size(); ++at) {
    if (TORCH_GUARD_OR_FALSE(found[at].sym_ne(expected[at]))) return false;
  }
  return true;
}

void check_shape(const at::Tensor& tensor, const Shape& expected, std::string_view name,
                 std::string_view what, std::string_view meaning) {
  TORCH_CHECK_VALUE(same(tensor.sym_sizes(), expected), name, ": ", what, " has shape ", tensor.sym_sizes(),
                    ", expected ", c10::SymIntArrayRef(expected), " = ", meaning);
}

void check_dtypes(const Arguments& arguments, std::string_view name) {
  static constexpr const char* kNames[] = {"query",   "key",      "value", "alpha_q",      "alpha_k",
                                           "alpha_v", "collapse", "sinks", "mode_weights", "block_weights"};
  const at::ScalarType dtype = arguments.query().scalar_type();
  TORCH_CHECK_VALUE(
      dtype == at::kDouble || dtype == at::kFloat || dtype == at::kBFloat16 || dtype == at::kHalf, name,
      ": query is ", dtype, ", expected Double, Float, BFloat16 or Half");
  for (int input = 0; input < kInputCount; ++input) {
    const at::Tensor& tensor = arguments.inputs[input];
    if (!tensor.defined()) continue;
    TORCH_CHECK_VALUE(tensor.device() == arguments.query().device(), name, ": ", kNames[input], " is on ",
                      tensor.device(), ", expected ", arguments.query().device(), " as query is");
    TORCH_CHECK_VALUE(tensor.layout() == at::kStrided, name, ": ", kNames[input], " is ", tensor.layout(),
                      ", expected a dense tensor");
    if (input <= kValue) {
      TORCH_CHECK_VALUE(tensor.scalar_type() == dtype, name, ": ", kNames[input], " is ",
                        tensor.scalar_type(), ", expected ", dtype, " as query is");
    } else {
      TORCH_CHECK_VALUE(tensor.scalar_type() == dtype || tensor.scalar_type() == at::kFloat, name, ": ",
                        kNames[input], " is ", tensor.scalar_type(), ", expected ", dtype,
                        " as query is, or Float");
    }
  }
}

void check_data(const Arguments& arguments, std::string_view name) {
  const at::Tensor &query = arguments.query(), &key = arguments.key(), &value = arguments.value();
  TORCH_CHECK_VALUE(query.dim() == 4, name, ": query has shape ", query.sym_sizes(),
                    ", expected 4 dimensions [batch, heads, tokens, channels]");
  TORCH_CHECK_VALUE(key.dim() == 4, name, ": key has shape ", key.sym_sizes(),
                    ", expected 4 dimensions [batch, heads, tokens, channels]");
  check_shape(key, {query.sym_size(0), key.sym_size(1), key.sym_size(2), query.sym_size(3)}, name, "key",
              "[batch of query, key heads, keys, channels of query]");
  if (value.defined()) {
    TORCH_CHECK_VALUE(value.dim() == 4, name, ": value has shape ", value.sym_sizes(),
                      ", expected 4 dimensions [batch, heads, tokens, channels]");
    check_shape(value, {key.sym_size(0), key.sym_size(1), key.sym_size(2), value.sym_size(3)}, name, "value",
                "[batch of key, heads of key, tokens of key, channels]");
  }
  const c10::SymInt query_heads = query.sym_size(1), key_heads = key.sym_size(1);
  const bool multiple = key_heads == 0 ? query_heads == 0 : query_heads % key_heads == 0;
  TORCH_CHECK_VALUE(multiple, name, ": ", query_heads, " query heads is not a multiple of ", key_heads,
                    " key heads");
}

void check_weights(const Arguments& arguments, std::string_view name) {
  const c10::SymInt query_heads = arguments.query().sym_size(1), key_heads = arguments.key().sym_size(1);
  for (const auto& [input, what] :
       {std::pair{kAlphaQ, "alpha_q"}, {kAlphaK, "alpha_k"}, {kAlphaV, "alpha_v"}}) {
    const at::Tensor& alpha = arguments.inputs[input];
    if (!alpha.defined()) continue;
    TORCH_CHECK_VALUE(alpha.dim() == 3 && alpha.sym_size(2) > 0, name, ": ", what, " has shape ",
                      alpha.sym_sizes(),
                      ", expected [source head, head, pseudo-head] with at least one pseudo-head");
  }
  const c10::SymInt pseudo_heads = arguments.pseudo_heads();
  for (const auto& [input, what] :
       {std::pair{kAlphaQ, "alpha_q"}, {kAlphaK, "alpha_k"}, {kAlphaV, "alpha_v"}}) {
    const at::Tensor& alpha = arguments.inputs[input];
    const c10::SymInt heads = input == kAlphaQ ? query_heads : key_heads;
    if (alpha.defined()) {
      check_shape(alpha, {heads, heads, pseudo_heads}, name, what, "[source head, head, pseudo-head]");
    }
  }
  const at::Tensor& collapse = arguments.inputs[kCollapse];
  if (collapse.defined() && collapse.dim() == 3) {
    check_shape(collapse, {query_heads, query_heads, pseudo_heads}, name, "collapse",
                "[head, source head, pseudo-head]");
  } else if (collapse.defined()) {
    check_shape(collapse, {query_heads, pseudo_heads}, name, "collapse", "[head, pseudo-head]");
  }
  const at::Tensor& sinks = arguments.inputs[kSinks];
  if (sinks.defined()) check_shape(sinks, {query_heads}, name, "sinks", "[query heads]");
}

void check_presence(const at::Tensor& tensor, bool needed, std::string_view name, std::string_view what,
                    std::string_view heads) {
  TORCH_CHECK_VALUE(tensor.defined() || !needed, name, ": ", what, " is None, expected a tensor for the ",
                    heads, " heads of patterns");
  TORCH_CHECK_VALUE(!tensor.defined() || needed, name, ": ", what, " is given, expected None without ", heads,
                    " heads in patterns");
}

// Mode and block weights, as far as shapes go.
void check_pair_weights(const Arguments& arguments, std::string_view name) {
  const c10::SymInt heads = arguments.query().sym_size(1);
  const std::vector<Pattern> patterns =
      parse_heads(arguments.patterns, heads.guard_int(__FILE__, __LINE__), name);
  const at::Tensor &modes = arguments.inputs[kModeWeights], &blocks = arguments.inputs[kBlockWeights];
  const int64_t candidates = most_candidates(patterns), block = dynamic_block(patterns, name);
  check_presence(modes, candidates > 0, name, "mode_weights", "learned");
  check_presence(blocks, block > 0, name, "block_weights", "dynamic");
  if (modes.defined()) {
    check_shape(modes, {heads, candidates}, name, "mode_weights", "[query heads, most candidates of a head]");
  }
  if (blocks.defined()) {
    const c10::SymInt count = (arguments.key().sym_size(2) + (block - 1)) / block;
    check_shape(blocks, {arguments.query().sym_size(0), heads, arguments.query().sym_size(2), count}, name,
                "block_weights", "[batch, query heads, queries, blocks of keys]");
  }
}

void check_range(const at::Tensor& weights, std::string_view name, std::string_view what) {
  if (weights.numel() == 0) return;
  const auto [least, most] = at::aminmax(weights);  // NaN reaches both
  check_weight(least.item<double>(), name, what);
  check_weight(most.item<double>(), name, what);
}

// The values that heads read. Throws std::invalid_argument.
void check_weight_values(const Arguments& arguments, const Problem& problem, std::string_view name) {
  std::vector<int64_t> dynamic;
  for (int64_t h = 0; h < problem.query_heads; ++h) {
    const Pattern& pattern = problem.patterns[h];
    const auto count = static_cast<int64_t>(pattern.candidates.size());
    if (count > 0) {
      check_range(arguments.inputs[kModeWeights].select(0, h).narrow(0, 0, count), name, "mode_weights");
    }
    if (pattern.dynamic()) dynamic.push_back(h);
  }
  const at::Tensor& blocks = arguments.inputs[kBlockWeights];
  if (static_cast<int64_t>(dynamic.size()) == problem.query_heads) {
    if (blocks.defined()) check_range(blocks, name, "block_weights");
    return;
  }
  for (const int64_t h : dynamic) check_range(blocks.select(1, h), name, "block_weights");
}

void check_integers(const at::Tensor& tensor, std::string_view name, std::string_view what) {
  TORCH_CHECK_VALUE(tensor.scalar_type() == at::kLong, name, ": ", what, " is ", tensor.scalar_type(),
                    ", expected Long (int64)");
}

void check_positions(const Arguments& arguments, std::string_view name) {
  const c10::SymInt batch = arguments.query().sym_size(0), keys = arguments.key().sym_size(2);
  if (const at::Tensor& offset = arguments.query_offset; offset.defined()) {
    check_integers(offset, name, "query_offset");
    TORCH_CHECK_VALUE(offset.sym_numel() == 1 || (offset.dim() == 1 && offset.sym_numel() == batch), name,
                      ": query_offset has shape ", offset.sym_sizes(), ", expected one element or [", batch,
                      "] = [batch]");
  }
  if (arguments.key_lengths.defined()) {
    check_integers(arguments.key_lengths, name, "key_lengths");
    check_shape(arguments.key_lengths, {batch}, name, "key_lengths", "[batch]");
    TORCH_CHECK_VALUE(arguments.query_offset.defined() || arguments.query().sym_size(2) == keys, name,
                      ": key_lengths with ", arguments.query().sym_size(2), " queries and ", keys,
                      " keys, expected query_offset too");
  }
  if (arguments.documents.defined()) {
    check_integers(arguments.documents, name, "documents");
    check_shape(arguments.documents, {batch, keys}, name, "documents", "[batch, keys]");
  }
  if (const at::Tensor& freqs = arguments.rope_freqs; freqs.defined()) {
    TORCH_CHECK_VALUE(freqs.is_floating_point(), name, ": rope_freqs is ", freqs.scalar_type(),
                      ", expected a floating dtype (Double is best)");
    TORCH_CHECK_VALUE(freqs.dim() == 1 && freqs.sym_numel() > 0, name, ": rope_freqs has shape ",
                      freqs.sym_sizes(), ", expected one frequency a pair of channels");
    TORCH_CHECK_VALUE(freqs.sym_numel() * 2 <= arguments.query().sym_size(3), name, ": ", freqs.sym_numel(),
                      " rope_freqs for head dimension ", arguments.query().sym_size(3),
                      ", expected at most half of it");
  }
}

std::vector<int64_t> integers(const at::Tensor& tensor) {
  const at::Tensor host = tensor.to(at::kCPU).contiguous();
  const int64_t* data = host.const_data_ptr<int64_t>();
  return {data, data + host.numel()};
}

Rope make_rope(const Arguments& arguments, std::string_view name) {
  Rope rope{rope_of(arguments, name), arguments.rope_theta, {}, style_of(arguments, name)};
  if (arguments.rope_freqs.defined()) {
    const at::Tensor host = arguments.rope_freqs.to(at::kCPU, at::kDouble).contiguous();
    rope.frequencies.assign(host.const_data_ptr<double>(), host.const_data_ptr<double>() + host.numel());
  }
  return rope;
}

}  // namespace

c10::SymInt Arguments::pseudo_heads() const {
  for (const Input input : {kAlphaQ, kAlphaK, kAlphaV}) {
    if (inputs[input].defined()) return inputs[input].sym_size(2);
  }
  return 1;
}

bool Arguments::plain() const {
  return !inputs[kCollapse].defined() && pseudo_heads() == 1;
}

bool Arguments::needs_wide_parts() const {
  return inputs[kSinks].defined() || inputs[kModeWeights].defined() || inputs[kBlockWeights].defined();
}

bool Arguments::needs_parts() const {
  const at::ScalarType dtype = query().scalar_type();
  return !plain() || (needs_wide_parts() && accumulate_type(dtype) != dtype);
}

at::ScalarType accumulate_type(at::ScalarType dtype) {
  return dtype == at::kDouble ? at::kDouble : at::kFloat;
}

at::ScalarType parts_type(const Arguments& arguments, Want want) {
  const at::ScalarType dtype = arguments.query().scalar_type();
  return want.out && arguments.needs_wide_parts() ? accumulate_type(dtype) : dtype;
}

Arguments read_arguments(StackReader& reader) {
  Arguments arguments;
  for (at::Tensor& input : arguments.inputs) input = reader.tensor();
  for (at::Tensor* tensor : arguments.constants()) *tensor = reader.tensor();
  arguments.patterns = reader.string();
  arguments.layout = reader.string();
  arguments.order = reader.string();
  arguments.rope = reader.string();
  arguments.rope_theta = reader.next().toDouble();
  arguments.rope_style = reader.string();
  arguments.scale = reader.next().toOptional<double>();
  arguments.dropout_p = reader.next().toDouble();
  return arguments;
}

Upstream read_upstream(StackReader& reader) {
  Upstream upstream;
  for (at::Tensor* tensor :
       {&upstream.grad_out, &upstream.grad_parts, &upstream.grad_lse, &upstream.parts, &upstream.lse}) {
    *tensor = reader.tensor();
  }
  return upstream;
}

Wanted read_wanted(StackReader& reader) {
  const c10::List<bool> list = reader.next().toBoolList();
  Wanted wanted{};
  std::copy_n(list.begin(), std::min<size_t>(list.size(), kInputCount), wanted.begin());
  return wanted;
}

void push_arguments(torch::jit::Stack& stack, Arguments arguments) {
  for (const at::Tensor& input : arguments.inputs) stack.push_back(optional_tensor(input));
  for (const at::Tensor* tensor : arguments.constants()) stack.push_back(optional_tensor(*tensor));
  torch::jit::push(stack, arguments.patterns, arguments.layout, arguments.order, arguments.rope,
                   arguments.rope_theta, arguments.rope_style, arguments.scale, arguments.dropout_p);
}

void raise_value_error(const std::exception& error) {
  TORCH_CHECK_VALUE(false, error.what());
}

std::vector<Pattern> parse_heads(const std::string& patterns, int64_t heads, std::string_view name) {
  try {
    return parse_patterns(patterns).expand(heads);
  } catch (const std::invalid_argument& error) {
    TORCH_CHECK_VALUE(false, name, ": patterns '", patterns, "': ", error.what());
  }
}

void check_arguments(const Arguments& arguments, std::string_view name) {
  TORCH_CHECK_VALUE(arguments.query().defined() && arguments.key().defined(), name,
                    ": query or key is absent, expected a tensor of 4 dimensions");
  check_data(arguments, name);
  check_dtypes(arguments, name);
  check_weights(arguments, name);
  check_positions(arguments, name);
  layout_of(arguments, name);
  order_of(arguments, name);
  style_of(arguments, name);
  const bool turns = rope_of(arguments, name) != RopeKind::kNone;
  TORCH_CHECK_VALUE(turns || !arguments.rope_freqs.defined(), name,
                    ": rope_freqs with rope 'none', expected rope 'token' or 'virtual'");
  if (turns && !arguments.rope_freqs.defined()) {
    TORCH_CHECK_VALUE(arguments.query().sym_size(3) % 2 == 0, name, ": head dimension is ",
                      arguments.query().sym_size(3), ", expected even with RoPE");
    TORCH_CHECK_VALUE(std::isfinite(arguments.rope_theta) && arguments.rope_theta > 0, name,
                      ": rope_theta is ", arguments.rope_theta, ", expected a positive number");
  }
  TORCH_CHECK_VALUE(!arguments.scale || std::isfinite(*arguments.scale), name, ": scale is ",
                    *arguments.scale, ", expected a finite number");
  TORCH_CHECK_VALUE(arguments.dropout_p >= 0 && arguments.dropout_p <= 1, name, ": dropout_p is ",
                    arguments.dropout_p, ", expected 0 to 1");
  check_pair_weights(arguments, name);
}

void check_upstream(const Upstream& upstream, const Arguments& arguments, std::string_view name) {
  const at::Tensor& query = arguments.query();
  const c10::SymInt pseudo_heads = arguments.pseudo_heads(), width = arguments.value().sym_size(3);
  const Shape out{query.sym_size(0), query.sym_size(1), query.sym_size(2), width};
  const Shape parts{out[0], out[1], out[2], pseudo_heads, width}, lse{out[0], out[1], out[2], pseudo_heads};
  const auto matches = [&](const at::Tensor& tensor, const Shape& shape, std::string_view what,
                           std::string_view meaning) {
    if (tensor.defined()) check_shape(tensor, shape, name, what, meaning);
  };
  const bool has_parts = upstream.parts.defined() && upstream.lse.defined();
  TORCH_CHECK_VALUE(has_parts, name, ": parts or lse is absent, expected both");
  matches(upstream.grad_out, out, "grad_out", "[batch, heads, queries, channels of value]");
  matches(upstream.grad_parts, parts, "grad_parts",
          "[batch, heads, queries, pseudo-heads, channels of value]");
  matches(upstream.grad_lse, lse, "grad_lse", "[batch, heads, queries, pseudo-heads]");
  matches(upstream.parts, upstream.parts.dim() == 4 && arguments.plain() ? out : parts, "parts",
          "[batch, heads, queries, pseudo-heads, channels of value]");
  matches(upstream.lse, lse, "lse", "[batch, heads, queries, pseudo-heads]");
}

Problem make_problem(const Arguments& arguments, std::string_view name) {
  check_arguments(arguments, name);
  Problem problem;
  problem.batch = arguments.query().size(0);
  problem.query_heads = arguments.query().size(1);
  problem.key_heads = arguments.key().size(1);
  problem.queries = arguments.query().size(2);
  problem.keys = arguments.key().size(2);
  problem.head_dim = arguments.query().size(3);
  problem.value_dim = arguments.value().defined() ? arguments.value().size(3) : 0;
  problem.pseudo_heads = arguments.pseudo_heads().expect_int();
  problem.patterns = parse_heads(arguments.patterns, problem.query_heads, name);
  problem.layout = layout_of(arguments, name);
  problem.order = order_of(arguments, name);
  problem.rope = make_rope(arguments, name);
  problem.scale = arguments.scale.value_or(1.0 / std::sqrt(std::max<double>(1.0, problem.head_dim)));
  if (const at::Tensor& collapse = arguments.inputs[kCollapse]; collapse.defined()) {
    problem.collapse = collapse.dim() == 3 ? CollapseKind::kGlobal : CollapseKind::kPerHead;
  }
  problem.query_offset.assign(problem.batch, problem.keys - problem.queries);
  if (arguments.query_offset.defined()) {
    problem.query_offset = integers(arguments.query_offset);
    if (problem.query_offset.size() == 1) problem.query_offset.resize(problem.batch, problem.query_offset[0]);
  }
  if (arguments.key_lengths.defined()) problem.key_lengths = integers(arguments.key_lengths);
  if (arguments.documents.defined()) problem.documents = integers(arguments.documents);
  problem.dropout_p = arguments.dropout_p;
  if (arguments.dropout_seed.defined()) {
    problem.dropout_seed = static_cast<uint64_t>(arguments.dropout_seed.item<int64_t>());
  }
  with_value_errors([&] {
    check(problem, name);
    check_weight_values(arguments, problem, name);
  });
  return problem;
}

}  // namespace iha::ops
