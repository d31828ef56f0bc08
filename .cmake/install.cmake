# What `cmake --install` puts where: include/tril/ holds the rooms as they lie here, so that `#include "core/ops.h"` means
# the same in an outside project. All of the headers, as the public ones include inner ones; but the command line's are
# nobody else's.
include(CMakePackageConfigHelpers)
set(package ${CMAKE_INSTALL_LIBDIR}/cmake/tril)
install(TARGETS tril_core tril_gradcheck tril_nn tril_train EXPORT tril ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
if(TARGET tril)
  install(TARGETS tril RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()
install(DIRECTORY core nn train DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/tril
  FILES_MATCHING PATTERN "*.h" PATTERN train/cli EXCLUDE)
install(EXPORT tril NAMESPACE tril:: FILE tril-targets.cmake DESTINATION ${package})
configure_package_config_file(.cmake/tril-config.cmake.in tril-config.cmake INSTALL_DESTINATION ${package})
write_basic_package_version_file(tril-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES .cmake/FindDNNL.cmake
  ${PROJECT_BINARY_DIR}/tril-config.cmake ${PROJECT_BINARY_DIR}/tril-config-version.cmake DESTINATION ${package})
