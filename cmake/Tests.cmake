enable_testing()
find_package(GTest QUIET)
