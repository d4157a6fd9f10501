package link

// TakeBeside makes payloads that are as long as n large frames.
func (o *FollowerOptions) TakeBeside(n int) { o.largeFrame = n }
