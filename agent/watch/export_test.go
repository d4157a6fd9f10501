package watch

import "github.com/fsnotify/fsnotify"

// SetCreate replaces what makes the watcher of the operating system.
func (w *Watcher) SetCreate(create func() (*fsnotify.Watcher, error)) { w.create = create }
