// SPDX-License-Identifier: Apache-2.0
//
// The kernel lies in the library, which compiles it when a GPU first needs it; see
// bolide.jit.files.
