# SPDX-License-Identifier: Apache-2.0
#
# Embeds the device sources. One C file in the build folder takes each of them in with .incbin and
# lists them in a table (src/cuda/source.h), sorted by name. A new kernel file needs no line here.

function(bolide_embed target)
  file(GLOB_RECURSE files RELATIVE ${PROJECT_SOURCE_DIR}/src CONFIGURE_DEPENDS
    ${PROJECT_SOURCE_DIR}/src/*.cu ${PROJECT_SOURCE_DIR}/src/*.cuh
    ${PROJECT_SOURCE_DIR}/src/*_internal.h ${PROJECT_SOURCE_DIR}/src/ops/*.h)
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
