// Calls of the inner operators through torch's dispatcher, so that modes, tracing and autograd see them.
#pragma once

#include "iha/ops/arguments.h"

namespace iha::ops {

Results call_forward(const Arguments& arguments, Want want);
Inputs call_backward(const Arguments& arguments, const Upstream& upstream, const Wanted& wanted);
at::Tensor call_weights(const Arguments& arguments, const at::Tensor& rows);

}  // namespace iha::ops
