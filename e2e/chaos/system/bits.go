package system

// bits is a set of small numbers.
type bits []uint64

func (s *bits) add(n int) {
	for len(*s) <= n/64 {
		*s = append(*s, 0)
	}
	(*s)[n/64] |= 1 << (n % 64)
}

func (s *bits) has(n int) bool { return n/64 < len(*s) && (*s)[n/64]&(1<<(n%64)) != 0 }
