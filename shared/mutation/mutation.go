//go:build plant_ask || plant_cas || plant_close || plant_delete || plant_fence || plant_fresh || plant_guard || plant_orphans || plant_strand || plant_ttl

// Package mutation names bugs that the chaos program must find. A build tag puts
// one in; without a tag each is false, and the compiler removes it.
package mutation

import (
	"runtime/debug"
	"slices"
	"strings"
)

// The bugs, each by the build tag that puts it in.
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

// planted reports whether the program was built with the tag, by its build
// information. It panics without that: the bug would be missing unseen.
func planted(tag string) bool {
	info, _ := debug.ReadBuildInfo()
	if info != nil {
		for _, setting := range info.Settings {
			if setting.Key == "-tags" {
				return slices.Contains(strings.Split(setting.Value, ","), tag)
			}
		}
	}
	panic("built with a planted bug, but the build information has no tags")
}
