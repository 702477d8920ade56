//go:build !plants

// Package mutation names bugs that the chaos program must find. A build tag puts
// one in; without a tag each is false, and the compiler removes it.
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
