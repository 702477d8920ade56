package testenv

import (
	"flag"
	"strconv"
)

// parallelTests is how many tests of a package run at a time. They mostly wait: for a
// lease, a time to live or each other's programs.
const parallelTests = 12

// SetParallel lets parallelTests of the package run at a time, unless the command line sets
// -parallel: go test runs one per core. Call it first in TestMain. Go begins the tests of the
// last files first, so a package is done sooner if its longest ones are there.
func SetParallel() {
	const name = "test.parallel"
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == name })
	if given {
		return
	}
	if err := flag.Set(name, strconv.Itoa(parallelTests)); err != nil {
		panic(err) // the testing package has had the flag since Go 1
	}
}
