package testenv

import (
	"flag"
	"strconv"
)

// SetParallel lets so many tests of the package run at a time, unless the command
// line sets -parallel: go test runs one per core, but a test that waits for a lease or
// a time to live needs no core meanwhile. Call it first in TestMain.
func SetParallel(tests int) {
	const name = "test.parallel"
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == name })
	if given {
		return
	}
	if err := flag.Set(name, strconv.Itoa(tests)); err != nil {
		panic(err) // the testing package has had the flag since Go 1
	}
}
