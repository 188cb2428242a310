package files

func prepareChild() {}
