# Finds LibTorch in the Python wheel and makes `iha_torch_flags`, which every target above the torch line links.
set(IHA_PYTHON "" CACHE FILEPATH "A Python interpreter that has torch; default: build/venv, else python3")
if(NOT IHA_PYTHON)
  if(EXISTS ${PROJECT_SOURCE_DIR}/build/venv/bin/python)
    set(IHA_PYTHON ${PROJECT_SOURCE_DIR}/build/venv/bin/python CACHE FILEPATH "" FORCE)
  else()
    find_program(iha_python3 python3 REQUIRED)
    set(IHA_PYTHON ${iha_python3} CACHE FILEPATH "" FORCE)
  endif()
endif()
if(NOT Torch_DIR AND NOT "Torch" IN_LIST CMAKE_PREFIX_PATH)
  execute_process(COMMAND ${IHA_PYTHON} -c "import torch; print(torch.utils.cmake_prefix_path)"
                  OUTPUT_VARIABLE iha_torch_prefix OUTPUT_STRIP_TRAILING_WHITESPACE RESULT_VARIABLE iha_status)
  if(iha_status EQUAL 0)
    list(APPEND CMAKE_PREFIX_PATH ${iha_torch_prefix})
  endif()
endif()
find_package(Torch 2.10 REQUIRED)

# One set of flags above the torch line, so that one precompiled header serves all of it: -fPIC also for programs,
# and -fopenmp because at::parallel_for lives in headers and would silently run serially without it.
add_library(iha_torch_flags INTERFACE)
target_link_libraries(iha_torch_flags INTERFACE iha_flags torch torch_cpu c10)
target_compile_options(iha_torch_flags INTERFACE -fPIC -fopenmp)
target_link_options(iha_torch_flags INTERFACE -fopenmp)

# Gives `target` the shared precompiled header and flags.
function(iha_above_torch target)
  set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE OFF DEFINE_SYMBOL "" BUILD_RPATH_USE_ORIGIN ON)
  target_link_libraries(${target} PUBLIC iha_torch_flags)
  target_precompile_headers(${target} REUSE_FROM iha_pch)
endfunction()

add_library(iha_pch OBJECT ${PROJECT_SOURCE_DIR}/cmake/precompiled.cpp)
set_target_properties(iha_pch PROPERTIES POSITION_INDEPENDENT_CODE OFF)
target_link_libraries(iha_pch PRIVATE iha_torch_flags)
target_precompile_headers(iha_pch PRIVATE ${PROJECT_SOURCE_DIR}/cmake/precompiled.h)
