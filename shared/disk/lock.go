package disk

import "errors"

// ErrLocked reports a file that another process, or another one here, has locked.
var ErrLocked = errors.New("disk: the file is locked")
