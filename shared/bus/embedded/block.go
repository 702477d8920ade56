package embedded

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"hash"
	"time"

	"github.com/minio/highwayhash"
)

// A block is a file of records, one behind the other, as nats-server 2.15 writes
// them. A record is a message, an erased message, or a tombstone of a message
// in any block:
//
//	4 bytes   length of the record; the highest bit: it has headers
//	8 bytes   sequence; the two highest bits: erased, tombstone
//	8 bytes   time in nanoseconds
//	2 bytes   length of the subject
//	          subject; with headers 4 bytes of their length; headers and message
//	8 bytes   checksum of all but the lengths
const (
	recordHeader = 22
	checksumSize = 8
	minRecord    = recordHeader + checksumSize
	maxRecord    = 32 << 20

	headersBit   = 1 << 31
	erasedBit    = 1 << 63
	tombstoneBit = 1 << 62
)

// block reads and writes the records of one file.
type block struct {
	data  []byte
	hash  hash.Hash64
	first uint64 // the last sequence of the blocks before it
}

func newBlock(stream string, index, first uint64, data []byte) (*block, error) {
	key := sha256.Sum256(fmt.Appendf(nil, "%s-%d", stream, index))
	h, err := highwayhash.New64(key[:])
	if err != nil {
		return nil, fmt.Errorf("hash block: %w", err)
	}
	return &block{data, h, first}, nil
}

// record is what the walk over a block needs to know of one.
type record struct {
	size int
	seq  uint64 // without its bits
	time int64
	// stored: it has a message's place in the order, as an erased one has too.
	stored bool
}

// at reads the record at an offset; ok is false without a record whose checksum
// is right. In a search among garbage, plausible is asked first.
func (b *block) at(offset int, plausible func(record) bool) (r record, ok bool) {
	left := b.data[offset:]
	if len(left) < minRecord {
		return r, false
	}
	length, raw := binary.LittleEndian.Uint32(left), binary.LittleEndian.Uint64(left[4:])
	r = record{
		size: int(length &^ headersBit), seq: raw &^ (erasedBit | tombstoneBit),
		time: int64(binary.LittleEndian.Uint64(left[12:])), stored: raw&tombstoneBit == 0, //nolint:gosec // as it was written
	}
	subject := int(binary.LittleEndian.Uint16(left[20:]))
	body := recordHeader + subject
	if length&headersBit != 0 {
		body += 4
	}
	if r.size < minRecord || r.size > min(len(left), maxRecord) || body > r.size-checksumSize || plausible != nil && !plausible(r) {
		return r, false
	}
	sum := b.checksum(left[:r.size], recordHeader+subject, body)
	return r, bytes.Equal(sum, left[r.size-checksumSize:r.size])
}

// checksum is that of a whole record without the bytes between two offsets.
func (b *block) checksum(rec []byte, from, to int) []byte {
	b.hash.Reset()
	_, _ = b.hash.Write(rec[4:20]) // it never fails
	_, _ = b.hash.Write(rec[recordHeader:from])
	_, _ = b.hash.Write(rec[to : len(rec)-checksumSize])
	return b.hash.Sum(nil)
}

// gap is a part of a block that holds no record.
type gap struct {
	from, to int // offsets
	// before is the last sequence in front of it, after the first one behind
	// it; 0 without one.
	before, after uint64
}

// gaps finds what cannot be read, and the last sequence. Behind a gap it goes on
// at the next record whose checksum is right.
func (b *block) gaps() (found []gap, last uint64) {
	last = b.first
	for offset := 0; offset < len(b.data); {
		r, ok := b.at(offset, nil)
		if !ok {
			g := gap{from: offset, to: b.next(offset+minRecord, last), before: last}
			found, offset = append(found, g), g.to
			continue
		}
		if r.stored && r.seq > last {
			last = r.seq
			for i := len(found) - 1; i >= 0 && found[i].after == 0; i-- {
				found[i].after = last
			}
		}
		offset += r.size
	}
	return found, last
}

// next is the offset of the next record, the end of the block after the last.
func (b *block) next(offset int, last uint64) int {
	const ahead = 1 << 40 // far more messages than a block holds
	oldest, newest := time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC).UnixNano(), time.Now().AddDate(10, 0, 0).UnixNano()
	plausible := func(r record) bool {
		return (r.time == 0 || r.time > oldest && r.time < newest) && r.seq < last+ahead && (!r.stored || r.seq > last)
	}
	for ; offset+minRecord <= len(b.data); offset++ {
		if _, ok := b.at(offset, plausible); ok {
			return offset
		}
	}
	return len(b.data)
}

// most is how many messages a gap may have held at most.
func (g gap) most() uint64 {
	most := uint64(max(1, (g.to-g.from)/minRecord))
	if g.after > 0 {
		most = min(most, max(1, g.after-g.before-1))
	}
	return most
}

// sequence is what the erased record in its place gets. One at the end takes as
// many sequences as may have been there, so that none is given twice.
func (g gap) sequence() uint64 {
	switch {
	case g.after == 0:
		return g.before + g.most()
	case g.from == 0:
		return g.after - 1
	}
	return g.before + 1
}

// mended is the block with each gap turned into one erased record, which is how
// the server leaves out a message and keeps those behind it.
func (b *block) mended(gaps []gap) []byte {
	out := bytes.Clone(b.data)
	for _, g := range gaps {
		size, seq := g.to-g.from, g.sequence()
		if size < minRecord { // the torn end of the file
			out = append(out[:g.from], make([]byte, minRecord)...)
			size = minRecord
		}
		rec := out[g.from : g.from+size]
		binary.LittleEndian.PutUint32(rec, uint32(size))
		binary.LittleEndian.PutUint64(rec[4:], seq|erasedBit)
		binary.LittleEndian.PutUint64(rec[12:], 0)
		binary.LittleEndian.PutUint16(rec[20:], 0)
		copy(rec[size-checksumSize:], b.checksum(rec, recordHeader, recordHeader))
	}
	return out
}
