# SPDX-License-Identifier: Apache-2.0
#
# What the CMakeLists.txt files of this project share: a test program in one line, the symbols of
# the shared library, and where programs are put.

# bolide_program(NAME source...): a program linked with the static library, whose internal symbols
# it may use. The tool and the engine lie in the build folder itself, tests in build/tests, the
# small examples in build/examples.
function(bolide_program name)
  add_executable(${name} ${ARGN})
  target_link_libraries(${name} PRIVATE bolide_static bolide_options)
endfunction()

# bolide_test(NAME source...): a program that prints "N passed, N failed, N skipped" as its last
# line and exits 1 if one failed. Other tests are registered with add_test as they are; each must
# print that line, too, for tests/run.sh adds them up.
function(bolide_test name)
  bolide_program(test_${name} ${ARGN})
  add_test(NAME ${name} COMMAND test_${name} WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
endfunction()

macro(bolide_output_folder folder)
  if("${folder}" MATCHES "/(tests)(/|$)|/(examples)$")
    set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/${CMAKE_MATCH_1}${CMAKE_MATCH_3})
  else()
    set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR})
  endif()
endmacro()

# Exports the public symbols alone.
function(bolide_shared_symbols target)
  set(map ${PROJECT_SOURCE_DIR}/cmake/exports.map)
  target_link_options(${target} PRIVATE LINKER:--version-script=${map})
  set_target_properties(${target} PROPERTIES LINK_DEPENDS ${map})
  bolide_glibc_baseline(${target})
endfunction()

# Binds functions that glibc has moved or renewed since 2.28 to their old versions
# (docs/adr/0002-glibc-baseline.md). A sanitizer must see the plain names.
function(bolide_glibc_baseline target)
  if(BOLIDE_SANITIZE OR NOT CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64|aarch64")
    return()
  endif()
  set(baseline ${PROJECT_SOURCE_DIR}/src/core/glibc_baseline.S)
  target_sources(${target} PRIVATE ${baseline})
  set_property(DIRECTORY ${PROJECT_SOURCE_DIR} APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${baseline})
  file(STRINGS ${baseline} lines REGEX "^OLD")
  foreach(line IN LISTS lines)
    string(REGEX REPLACE "^OLD[A-Z_]*\\(([a-z0-9_]+).*" "\\1" name "${line}")
    target_link_options(${target} PRIVATE LINKER:--wrap=${name})
  endforeach()
  # Before 2.34 the functions lie in these two, and a library without them in its list of needed
  # libraries would not find them there.
  target_link_options(${target} PRIVATE LINKER:-z,defs LINKER:--gc-sections
    LINKER:--push-state,--no-as-needed,-l:libpthread.so.0,-l:libdl.so.2,--pop-state)
endfunction()
