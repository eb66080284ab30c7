"""What planners share: trees and their lowering, pipes, time reversal, dispatch, fixed algorithms, counted work."""
