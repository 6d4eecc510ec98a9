REF_OP(rmsnorm)
