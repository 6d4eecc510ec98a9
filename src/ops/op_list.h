BOLIDE_OP(rmsnorm)
