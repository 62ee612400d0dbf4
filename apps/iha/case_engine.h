// Computes case files: attention by the torch operator or by the oracle, whole layers by the layers of nn/.
// Not here: reading cases and comparing results (iha/io/case_file.h).
#pragma once

#include <string>

#include "iha/io/case_file.h"

namespace iha::app {

enum class Engine {
  kOperator,  // iha::attention in the case's dtype; layers in the case's dtype
  kOracle,    // the plain loops in float64; layers in float64
};

// The names that --engine takes. Throws std::invalid_argument for another.
Engine engine_named(const std::string& name);

// `out`, and for attention `lse` and `parts`; where the case has `grad_out` also `grad_NAME` of every
// floating input (attention), or `grad_x` and `grad_PARAMETER` (layers).
io::Arrays compute(const io::Case& given, Engine engine);

}  // namespace iha::app
