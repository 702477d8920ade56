// Package admin is what an operator does to a whole installation from
// outside: look at its health (Doctor), copy all of it while it runs (Backup),
// and bring a copy back (Restore). It speaks NATS.
//
// Reading order: backup.go with snapshot.go (the server's copy of a stream) and later.go (what
// was written meanwhile), verify_backup.go, restore.go; doctor.go (the order of the checks)
// with doctor_server.go (NATS itself) and deep.go (every message); system.go (the same
// findings for a page of the console).
//
// # What a backup is worth
//
// A backup is a folder: one file for each stream or bucket as the server copies
// it, another one with what was written to the stream meanwhile, a manifest, and
// the SHA-256 of all of them, written last. Streams are copied one after the
// other, in the order of streams.BackupOrder, so that every job that was
// accepted before the backup began is in it: as a queue message, or with a
// record that says how it ended. What was accepted later may be in it.
//
// The server's copy of a stream is no instant: it reads the stream's blocks one
// by one while writers go on, and a value that is written again meanwhile can move
// from a block that is yet to be read into a block that never is. Hence the second
// file, read by sequence once the copy is complete: a value that moved is in it.
// Restore writes what the copy lacks of it.
//
// Restore brings the streams back in the order of the manifest, which is that of the backup. The
// bucket of endpoints, without which nothing starts, comes last.
package admin
