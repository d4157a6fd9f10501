package stock

// PropertiesText is for the tests of its inverse.
var PropertiesText = propertiesText
