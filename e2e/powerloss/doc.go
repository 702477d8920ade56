// Package powerloss takes the power away from a running dev, at any instant, and
// looks whether each answer that it had given still holds.
//
// dev keeps its data on a file system of ours, mounted with FUSE: disk_linux.go. It
// records each change, and each fsync, in a journal. journal.go says from a part of
// the journal which files a power cut would have left at that instant: what was
// fsynced, and of the rest as little as a kind of file system allows. So one run of
// dev has as many power cuts as its journal has entries.
package powerloss
