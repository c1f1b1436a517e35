# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
#
# inject_glibc_floor(TARGET): links a shared library so that it loads with every glibc from INJECT_GLIBC_FLOOR on,
# whatever glibc this machine has: against stand-ins of the C library (make_glibc_stubs.py) and the static C++ runtime.
# Empty: linked in the ordinary way, for this machine's glibc and newer.
set(INJECT_GLIBC_FLOOR 2.28 CACHE STRING "Oldest glibc that libinject.so has to load with; empty: this machine's")

function(inject_glibc_floor target)
  if(NOT INJECT_GLIBC_FLOOR)
    target_link_options(${target} PRIVATE -static-libstdc++ -static-libgcc)
    return()
  endif()
  find_package(Python3 REQUIRED COMPONENTS Interpreter)
  set(stubs ${PROJECT_BINARY_DIR}/glibc-${INJECT_GLIBC_FLOOR})
  set(generator ${PROJECT_SOURCE_DIR}/cmake/make_glibc_stubs.py)
  if(NOT EXISTS ${stubs}/done OR ${generator} IS_NEWER_THAN ${stubs}/done)
    execute_process(
      COMMAND ${Python3_EXECUTABLE} ${generator} ${CMAKE_CXX_COMPILER} ${CMAKE_READELF} ${INJECT_GLIBC_FLOOR} ${stubs}
      RESULT_VARIABLE failed)
    if(failed)
      message(FATAL_ERROR "make_glibc_stubs.py failed; -DINJECT_GLIBC_FLOOR= builds for this machine's glibc alone")
    endif()
    file(TOUCH ${stubs}/done)
  endif()
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${generator})

  # No run path, which would lead to the stand-ins.
  set_target_properties(${target} PROPERTIES BUILD_WITH_INSTALL_RPATH ON INSTALL_RPATH "")

  # atexit and pthread_atfork live here: they have to know which library called them.
  execute_process(COMMAND ${CMAKE_CXX_COMPILER} -print-file-name=libc_nonshared.a OUTPUT_VARIABLE nonshared
                  OUTPUT_STRIP_TRAILING_WHITESPACE)
  file(GLOB loader ${stubs}/ld-linux*.so.?)
  target_link_options(${target} PRIVATE -nodefaultlibs LINKER:--wrap=pthread_cond_clockwait
                                        LINKER:--wrap=_dl_find_object)
  # Without libm where that is possible: it takes 0.07 … 0.13 ms to load into every process, and x86-64 has an
  # instruction for every square root. (The linker would count it as needed for parts of libstdc++ that --gc-sections
  # then drops.)
  set(libm "")
  if(NOT CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
    set(libm ${stubs}/libm.so.6)
  endif()
  # The loader's stack guard (aarch64) is first asked for by archives that come after it, such as zlib's.
  target_link_libraries(
    ${target} PRIVATE -Wl,-Bstatic -lstdc++ -Wl,-Bdynamic -lgcc_eh -lgcc ${libm} ${stubs}/libc.so.6
                      -Wl,--no-as-needed ${loader} ${stubs}/libpthread.so.0 ${stubs}/libdl.so.2 ${nonshared})
endfunction()
