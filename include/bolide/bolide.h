// SPDX-License-Identifier: Apache-2.0
//
// Everything public.

#ifndef BOLIDE_BOLIDE_H
#define BOLIDE_BOLIDE_H

#include <bolide/activation.h>
#include <bolide/attention.h>
#include <bolide/cascade.h>
#include <bolide/core.h>
#include <bolide/gemm.h>
#include <bolide/norm.h>
#include <bolide/page.h>
#include <bolide/quant.h>
#include <bolide/rope.h>
#include <bolide/sampling.h>
#include <bolide/sparse.h>
#include <bolide/sparse_mla.h>
#include <bolide/topk.h>

#endif
