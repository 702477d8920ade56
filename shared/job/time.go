package job

import "time"

// Overdue reports whether the run that holds the job is past its deadline.
func (j *Job) Overdue(now time.Time) bool {
	return j.Status == InProgress && !j.Deadline.IsZero() && !now.Before(j.Deadline)
}

// Later returns the later of two instants.
func Later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// UnixMilli returns t in Unix milliseconds, as what is stored has it; 0 for the
// zero time.
func UnixMilli(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}

// FromUnixMilli is the inverse of UnixMilli.
func FromUnixMilli(ms int64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms)
}

// CutError returns text as it may be kept in a record: at most MaxError bytes,
// cut at a character boundary and marked when it was longer.
func CutError(text string) string {
	const mark = "… (cut)"
	if len(text) <= MaxError {
		return text
	}
	end := MaxError - len(mark)
	for end > 0 && text[end]&0xC0 == 0x80 { // not the first byte of a character
		end--
	}
	return text[:end] + mark
}
