# SPDX-License-Identifier: Apache-2.0
#
# Embeds the device sources. One C file in the build folder takes each of them in with .incbin and
# lists them in a table (src/cuda/source.h), sorted by name. A new kernel file needs no line here.

# Sets `kept` to those files that are kernels or that one of these includes, be it through others.
function(bolide_included kept)
  set(found "")
  set(todo ${ARGN})
  list(FILTER todo INCLUDE REGEX "\\.cuh?$")
  while(todo)
    list(POP_FRONT todo file)
    if(file IN_LIST found OR NOT file IN_LIST ARGN)
      continue()
    endif()
    list(APPEND found ${file})
    file(STRINGS ${PROJECT_SOURCE_DIR}/src/${file} lines REGEX "^#include \"")
    foreach(line IN LISTS lines)
      string(REGEX REPLACE "^#include \"([^\"]*)\".*" "\\1" name ${line})
      list(APPEND todo ${name})
    endforeach()
  endwhile()
  set(${kept} ${found} PARENT_SCOPE)
endfunction()

function(bolide_embed target)
  file(GLOB_RECURSE files RELATIVE ${PROJECT_SOURCE_DIR}/src CONFIGURE_DEPENDS
    ${PROJECT_SOURCE_DIR}/src/*.cu ${PROJECT_SOURCE_DIR}/src/*.cuh
    ${PROJECT_SOURCE_DIR}/src/*_internal.h ${PROJECT_SOURCE_DIR}/src/ops/*.h)
  list(TRANSFORM files PREPEND ${PROJECT_SOURCE_DIR}/src/ OUTPUT_VARIABLE all)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${all}) # they may come to include
  bolide_included(files ${files})
  list(SORT files)
  set(bytes "")
  set(externs "")
  set(rows "")
  set(paths "")
  set(index 0)
  foreach(file IN LISTS files)
    string(APPEND bytes "FILE(${index}, \"${PROJECT_SOURCE_DIR}/src/${file}\")\n")
    string(APPEND externs "extern const char bolide__source_${index}[], bolide__source_end_${index}[];\n")
    string(APPEND rows "    {\"${file}\", bolide__source_${index}, bolide__source_end_${index}},\n")
    list(APPEND paths ${PROJECT_SOURCE_DIR}/src/${file})
    math(EXPR index "${index} + 1")
  endforeach()
  set(output ${PROJECT_BINARY_DIR}/embedded_sources.c)
  configure_file(${PROJECT_SOURCE_DIR}/cmake/embedded_sources.c.in ${output} @ONLY)
  set_source_files_properties(${output} PROPERTIES OBJECT_DEPENDS "${paths}")
  target_sources(${target} PRIVATE ${output})
endfunction()
