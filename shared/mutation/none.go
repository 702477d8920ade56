//go:build !plants

// Package mutation names bugs that the chaos program must find. The build tag plants
// puts them into a program (mutation.go). Here each is false, and the compiler removes it.
package mutation

// The bugs, none of which is in this program.
const (
	NoAsk       = false
	NoCompare   = false
	CloseAtOnce = false
	DeleteFirst = false
	NoFence     = false
	AlwaysFresh = false
	NoGuard     = false
	NoOrphans   = false
	Stay        = false
	ShortTTL    = false
)
