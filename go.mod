module github.com/haagent/haagent

go 1.26.0
