# find_package(foldwire) gives foldwire::foldwire, shared, and foldwire::static.
get_filename_component(_foldwire_prefix "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)

if(NOT TARGET foldwire::foldwire)
  find_package(Threads REQUIRED)
  add_library(foldwire::foldwire SHARED IMPORTED)
  set_target_properties(foldwire::foldwire PROPERTIES
    IMPORTED_LOCATION "${_foldwire_prefix}/lib/libfoldwire_c.so"
    IMPORTED_NO_SONAME TRUE
    INTERFACE_INCLUDE_DIRECTORIES "${_foldwire_prefix}/include")
  add_library(foldwire::static STATIC IMPORTED)
  set_target_properties(foldwire::static PROPERTIES
    IMPORTED_LOCATION "${_foldwire_prefix}/lib/libfoldwire_c.a"
    INTERFACE_INCLUDE_DIRECTORIES "${_foldwire_prefix}/include"
    INTERFACE_LINK_LIBRARIES "Threads::Threads;gcc_s;m;dl")
endif()

unset(_foldwire_prefix)
