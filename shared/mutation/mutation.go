//go:build plants

// Package mutation names bugs that the chaos program must find. The build tag plants
// puts them into a program, and the environment variable CHAOS_PLANT chooses the one
// that it then has. Without the tag each is false, and the compiler removes it.
package mutation

import "os"

// The bugs, each by the name that chooses it.
var (
	NoAsk       = planted("plant_ask")     // takes a run over without asking its holder
	NoCompare   = planted("plant_cas")     // writes without compare-and-set
	CloseAtOnce = planted("plant_close")   // ends the subscription of a closed pull while a delivery may be on its way
	DeleteFirst = planted("plant_delete")  // removes the queue message before the record
	NoFence     = planted("plant_fence")   // does not fence payloads by run
	AlwaysFresh = planted("plant_fresh")   // takes every delivery for a fresh one, however long the process was suspended
	NoGuard     = planted("plant_guard")   // takes over without the guard of uninterrupted service
	NoOrphans   = planted("plant_orphans") // finds no job that lost its worker
	Stay        = planted("plant_strand")  // keeps a process with a node that is cut off for 24 s
	ShortTTL    = planted("plant_ttl")     // lets the record expire before its queue message
)

func planted(name string) bool { return os.Getenv("CHAOS_PLANT") == name }
