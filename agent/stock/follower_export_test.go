package stock

// TakeBeside makes pieces that are as long as n large ones.
func (f *Follower) TakeBeside(n int) { f.largePiece = n }
