// SPDX-License-Identifier: Apache-2.0
//
// Texts that live as long as the process, one address for each content, so that a text can be a
// key and is compared by its address.

#ifndef BOLIDE_CORE_INTERN_H
#define BOLIDE_CORE_INTERN_H

/* The parts joined; NULL without memory. Safe from many threads. */
const char *bolide__intern(const char *const *parts, int count);

#endif
