"""A program with a size that data decide: the sum of five numbers."""

DATA_DEPENDENT = """
func.func public @main(%n: tensor<5xi32>) -> tensor<?xi32> {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %sum = stablehlo.reduce(%n init: %zero) applies stablehlo.add across dimensions = [0]
    : (tensor<5xi32>, tensor<i32>) -> tensor<i32>
  %shape = stablehlo.reshape %sum : (tensor<i32>) -> tensor<1xi32>
  %i = stablehlo.dynamic_iota %shape, dim = 0 : (tensor<1xi32>) -> tensor<?xi32>
  %y = stablehlo.multiply %i, %i : tensor<?xi32>
  return %y : tensor<?xi32>
}"""
