module example.com/toolchain

go 1.19

require github.com/google/uuid v1.3.0

// Debian's package of the module.
replace github.com/google/uuid => /usr/share/gocode/src/github.com/google/uuid
