// SPDX-License-Identifier: Apache-2.0
REF_OP(rmsnorm)
