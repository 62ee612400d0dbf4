// Everything that does not need torch.
#pragma once

#include "iha/core/dtype.h"
#include "iha/core/parallel.h"
#include "iha/kernels/attention.h"
#include "iha/kernels/problem.h"
#include "iha/patterns/count.h"
#include "iha/patterns/parse.h"
#include "iha/patterns/pattern.h"
