package console

// batches are what was begun with many jobs at once.
type batches struct{}

func newBatches() *batches { return &batches{} }
