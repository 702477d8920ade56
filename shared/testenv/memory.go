package testenv

import "runtime"

// MemoryInUse is how many bytes of the heap of the test's process, its server included, a
// collection leaves. Tests that run beside it count too.
func MemoryInUse() int {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc) //nolint:gosec // no heap has 2^63 bytes
}
