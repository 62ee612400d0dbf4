// Everything: the operator, the layers and the models for torch, and the torch-free part.
#pragma once

#include "iha/core.h"
#include "iha/models/language_model.h"
#include "iha/models/mixer.h"
#include "iha/models/sequence_tagger.h"
#include "iha/models/token_tagger.h"
#include "iha/nn/averaged_pseudo_heads.h"
#include "iha/nn/bit_linear.h"
#include "iha/nn/interleaved_head_attention.h"
#include "iha/nn/linear_attention.h"
#include "iha/nn/mixed_mode_attention.h"
#include "iha/nn/multi_head_latent_attention.h"
#include "iha/nn/rms_norm.h"
#include "iha/nn/ternary_export.h"
#include "iha/nn/transformer_block.h"
#include "iha/ops/attention.h"
