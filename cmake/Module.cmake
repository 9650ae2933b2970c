# The Python extension braze._C: frontend (Python.h, no torch) and bridge (torch).
find_package(Python3 COMPONENTS Interpreter Development.Module REQUIRED)
include(cmake/Torch.cmake)
file(GLOB_RECURSE frontend_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/frontend/*.cpp ${PROJECT_SOURCE_DIR}/frontend/*.c)
add_library(braze_frontend STATIC ${frontend_sources})
target_include_directories(braze_frontend PUBLIC ${PROJECT_SOURCE_DIR})
target_include_directories(braze_frontend SYSTEM PUBLIC ${Python3_INCLUDE_DIRS})
set_source_files_properties(${frontend_sources} PROPERTIES COMPILE_OPTIONS "-fwrapv")
# The bridge: everything that includes torch. One precompiled header serves its files.
file(GLOB_RECURSE bridge_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/bridge/*.cpp)
list(REMOVE_ITEM bridge_sources ${PROJECT_SOURCE_DIR}/bridge/module.cpp)
add_library(braze_bridge STATIC ${bridge_sources})
target_include_directories(braze_bridge PUBLIC ${PROJECT_SOURCE_DIR})
target_include_directories(braze_bridge SYSTEM PUBLIC ${Python3_INCLUDE_DIRS})
target_include_directories(braze_bridge SYSTEM PRIVATE ${BRAZE_TORCH_ROOT}/include ${BRAZE_TORCH_ROOT}/include/torch/csrc/api/include)
# -fopenmp for at::parallel_for; no link option: the OpenMP runtime is the one that torch brings
target_compile_options(braze_bridge PRIVATE -w -fopenmp)
target_precompile_headers(braze_bridge PRIVATE ${PROJECT_SOURCE_DIR}/bridge/torch.h)
# the whole of it: it registers itself with the dispatcher
target_link_libraries(braze_bridge INTERFACE -L${BRAZE_TORCH_ROOT}/lib torch_python torch torch_cpu c10)

function(braze_module name)
  add_library(${name} MODULE ${ARGN})
  set_target_properties(${name} PROPERTIES PREFIX "" SUFFIX ".so" BUILD_WITH_INSTALL_RPATH ON INSTALL_RPATH "$ORIGIN/../torch/lib")
  target_link_libraries(${name} PRIVATE $<LINK_LIBRARY:WHOLE_ARCHIVE,braze_bridge> $<IF:$<TARGET_EXISTS:braze_pipeline>,braze_core,braze_shapes> braze_support)
  target_link_options(${name} PRIVATE -Wl,--exclude-libs,ALL -Wl,--gc-sections)
endfunction()
braze_module(_C bridge/module.cpp)
target_link_libraries(_C PRIVATE braze_frontend)
# The bridge alone, driven by Python without the front end: tests/bridge.
if(BRAZE_BUILD_TESTS)
  braze_module(braze_bridge_test tests/bridge/module.cpp)
endif()
install(TARGETS _C DESTINATION braze COMPONENT module)
